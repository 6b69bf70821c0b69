-- Settled attempts whose sandbox is still there.
SELECT {attempt} FROM attempt
WHERE attempt.sandbox = 'PRESENT' AND attempt.state IN ('SUCCEEDED', 'FAILED', 'CANCELLED', 'UNKNOWN')
ORDER BY attempt.ended_at LIMIT :limit
