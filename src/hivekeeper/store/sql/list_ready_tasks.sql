-- PENDING -> IN_PROGRESS: tasks of active convoys whose repository is ready and whose predecessors are all COMPLETE,
-- by priority and then in the order they were asked for.
SELECT {task} FROM task
JOIN convoy ON convoy.name = task.convoy AND convoy.state = 'ACTIVE'
LEFT JOIN repo ON repo.name = task.repo
WHERE task.state = 'PENDING'
  AND (task.repo IS NULL OR repo.state = 'READY')
  AND NOT EXISTS (
    SELECT 1 FROM task_after
    LEFT JOIN task AS earlier ON earlier.key = task_after.after
    WHERE task_after.task = task.key AND (earlier.state IS NULL OR earlier.state <> 'COMPLETE')
  )
ORDER BY task.priority DESC, task.position
LIMIT :limit
