-- While what landed in a repository is made again nothing else begins there, and it is made again in the order it landed.

NOT EXISTS (
  SELECT 1 FROM task AS remade
  WHERE remade.state IN ('PENDING', 'IN_PROGRESS') AND remade.branch IS NOT NULL AND remade.remakes IS NOT NULL
    AND remade.repo = task.repo AND (task.remakes IS NULL OR remade.position < task.position AND (
      remade.state = 'PENDING'
      OR EXISTS (SELECT 1 FROM attempt WHERE attempt.task = remade.key AND attempt.state = 'WORKING')
    ))
)
