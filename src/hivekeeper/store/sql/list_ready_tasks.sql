-- PENDING -> IN_PROGRESS: tasks of active convoys whose repository is ready and whose predecessors are all COMPLETE,
-- by priority and then in the order they were asked for. Conditions on other tables are EXISTS, so that the index on
-- (state, priority, position) gives the order and the scan ends at the limit.
SELECT {task} FROM task
WHERE task.state = 'PENDING'
  AND EXISTS (SELECT 1 FROM convoy WHERE convoy.name = task.convoy AND convoy.state = 'ACTIVE')
  AND (task.repo IS NULL OR EXISTS (SELECT 1 FROM repo WHERE repo.name = task.repo AND repo.state = 'READY'))
  AND NOT EXISTS (
    SELECT 1 FROM task_after
    LEFT JOIN task AS earlier ON earlier.key = task_after.after
    WHERE task_after.task = task.key AND (earlier.state IS NULL OR earlier.state <> 'COMPLETE')
  )
ORDER BY task.priority DESC, task.position
LIMIT :limit
