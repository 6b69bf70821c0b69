-- The task with this key.
SELECT {task} FROM task WHERE key = :key
