-- The last sessions of an agent that have ended, newest first.
SELECT {attempt} FROM attempt
WHERE attempt.agent = :agent AND attempt.ended_at IS NOT NULL ORDER BY attempt.session DESC LIMIT :limit
