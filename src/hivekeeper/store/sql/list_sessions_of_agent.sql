-- Attempts of an agent at work or parked; it has one at a time.
SELECT {attempt} FROM attempt
WHERE attempt.agent = :agent AND {is_open:attempt} AND attempt.state IN ('WORKING', 'PARKED') ORDER BY attempt.task
