-- PENDING tasks of a convoy that nothing but a free worker (or a mirror being fetched) keeps from starting.
SELECT count(*) FROM task LEFT JOIN repo ON repo.name = task.repo
WHERE task.convoy = :convoy AND task.state = 'PENDING' AND (task.repo IS NULL OR repo.state <> 'FAILED')
  AND {is_unblocked}
