-- PARKED -> WORKING: parked attempts, with their tasks, that nothing holds up any more, the longest parked first. A
-- cancelled one waits for nothing.
SELECT {attempt}, {task} FROM attempt JOIN task ON task.key = attempt.task
WHERE {is_open:attempt} AND attempt.state = 'PARKED' AND (task.state = 'CANCELLING' OR {is_admitted})
ORDER BY task.state = 'CANCELLING' DESC, task.priority DESC, attempt.parked_seq
LIMIT :limit
