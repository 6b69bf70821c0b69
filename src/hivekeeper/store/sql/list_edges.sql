-- Which tasks of a convoy come after which, by the order of those that come first; keys lie between two names.
SELECT {task_after} FROM task_after JOIN task ON task.key = task_after.after
WHERE task_after.task >= :first AND task_after.task < :beyond
ORDER BY task.position
