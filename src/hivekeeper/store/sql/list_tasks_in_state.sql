-- Tasks in one state, by priority and age.
SELECT {task} FROM task WHERE state = :state ORDER BY priority DESC, position
