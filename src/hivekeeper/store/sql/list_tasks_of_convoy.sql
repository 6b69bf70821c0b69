-- All tasks of a convoy, in the order they were asked for.
SELECT {task} FROM task WHERE convoy = :convoy ORDER BY position
