-- Find what a task tells its worker.
SELECT text FROM task_prompt WHERE task = :task
