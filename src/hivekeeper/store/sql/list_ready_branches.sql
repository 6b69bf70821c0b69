-- PENDING -> IN_PROGRESS: branches of a person's whose repository is ready.
SELECT {task} FROM task
WHERE task.state = 'PENDING' AND task.branch IS NOT NULL
  AND EXISTS (SELECT 1 FROM repo WHERE repo.name = task.repo AND repo.state = 'READY')
  AND {is_next_to_be_remade}
ORDER BY task.priority DESC, task.position
