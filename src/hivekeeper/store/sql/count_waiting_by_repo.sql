-- How many PENDING tasks of active convoys each repository that is ready has.
SELECT task.repo, COUNT(*) FROM task
JOIN convoy ON convoy.name = task.convoy AND convoy.state = 'ACTIVE'
JOIN repo ON repo.name = task.repo AND repo.state = 'READY'
WHERE task.state = 'PENDING'
GROUP BY task.repo
