-- PENDING -> IN_PROGRESS: branches of a person's whose repository is ready. What landed and is made again goes first, in
-- the order it landed.
SELECT {task} FROM task
WHERE task.state = 'PENDING' AND json_extract(task.details, '$.branch') IS NOT NULL
  AND EXISTS (SELECT 1 FROM repo WHERE repo.name = task.repo AND repo.state = 'READY')
  AND NOT EXISTS (
    SELECT 1 FROM task AS remade
    WHERE remade.state IN ('PENDING', 'IN_PROGRESS') AND json_extract(remade.details, '$.branch') IS NOT NULL
      AND json_extract(remade.details, '$.remakes') IS NOT NULL AND remade.repo = task.repo
      AND (json_extract(task.details, '$.remakes') IS NULL OR remade.position < task.position AND (
        remade.state = 'PENDING'
        OR EXISTS (SELECT 1 FROM attempt WHERE attempt.task = remade.key AND attempt.state = 'WORKING')
      ))
  )
ORDER BY task.priority DESC, task.position
