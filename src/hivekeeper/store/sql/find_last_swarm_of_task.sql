-- The latest batch a task was in.
SELECT max(swarm) FROM attempt WHERE task = :task
