-- A task whose predecessors are all COMPLETE.

NOT EXISTS (
  SELECT 1 FROM task_after
  LEFT JOIN task AS earlier ON earlier.key = task_after.after
  WHERE task_after.task = task.key AND (earlier.state IS NULL OR earlier.state <> 'COMPLETE')
)
