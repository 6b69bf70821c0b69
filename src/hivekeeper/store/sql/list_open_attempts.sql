-- Attempts that have not settled, with their tasks.
SELECT {attempt}, {task} FROM attempt JOIN task ON task.key = attempt.task
WHERE attempt.state IN ('WORKING', 'PARKED', 'SUBMITTED') AND attempt.state = :state
ORDER BY attempt.started_at
