-- Attempts that have not settled, with their tasks.
SELECT {attempt}, {task} FROM attempt JOIN task ON task.key = attempt.task
WHERE {is_open:attempt} AND attempt.state = :state
ORDER BY attempt.started_at
