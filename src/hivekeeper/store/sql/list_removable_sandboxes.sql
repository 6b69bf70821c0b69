-- Resolved attempts whose sandbox is still there.
SELECT {attempt} FROM attempt
WHERE attempt.sandbox = 'PRESENT' AND NOT {is_open:attempt}
ORDER BY attempt.ended_at LIMIT :limit
