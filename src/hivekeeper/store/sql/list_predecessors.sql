-- The keys of all tasks that must be COMPLETE before this one.
SELECT after FROM task_after WHERE task = :task ORDER BY after
