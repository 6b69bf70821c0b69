-- Attempts of an agent at work or parked; it has one at a time.
SELECT {attempt} FROM attempt JOIN task ON task.key = attempt.task
WHERE task.agent = :agent AND {is_open:attempt} AND attempt.state IN ('WORKING', 'PARKED') ORDER BY attempt.task
