-- What a task still waits for.
SELECT {task} FROM task_after JOIN task ON task.key = task_after.after
WHERE task_after.task = :task AND task.state <> 'COMPLETE'
ORDER BY task.position
