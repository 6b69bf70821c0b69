-- PENDING -> IN_PROGRESS: tasks of active convoys whose repository is ready and whose predecessors are all COMPLETE,
-- by priority and then in the order they were asked for. Conditions on other tables are EXISTS, so that the index on
-- (state, priority, position) gives the order and the scan ends at the limit. While what landed in a repository is made
-- again nothing else begins there, and it comes to the queue in the order it landed. A prompt waits while everybody who
-- may take it is held up, or what it belongs to.
SELECT {task} FROM task
WHERE task.state = 'PENDING'
  AND EXISTS (SELECT 1 FROM convoy WHERE convoy.name = task.convoy AND convoy.state = 'ACTIVE')
  AND (task.repo IS NULL OR EXISTS (SELECT 1 FROM repo WHERE repo.name = task.repo AND repo.state = 'READY'))
  AND NOT EXISTS (
    SELECT 1 FROM task_after
    LEFT JOIN task AS earlier ON earlier.key = task_after.after
    WHERE task_after.task = task.key AND (earlier.state IS NULL OR earlier.state <> 'COMPLETE')
  )
  AND NOT EXISTS (
    SELECT 1 FROM task AS remade
    WHERE remade.state IN ('PENDING', 'IN_PROGRESS') AND json_extract(remade.details, '$.branch') IS NOT NULL
      AND json_extract(remade.details, '$.remakes') IS NOT NULL AND remade.repo = task.repo
      AND (json_extract(task.details, '$.remakes') IS NULL OR remade.position < task.position AND (
        remade.state = 'PENDING'
        OR EXISTS (SELECT 1 FROM attempt WHERE attempt.task = remade.key AND attempt.state = 'WORKING')
      ))
  )
  AND (
    NOT EXISTS (SELECT 1 FROM task_runner WHERE task_runner.task = task.key)
    OR (
      EXISTS (
        SELECT 1 FROM task_runner WHERE task_runner.task = task.key AND NOT EXISTS (
          SELECT 1 FROM hold WHERE hold.scope = 'runner' AND hold.name = task_runner.runner
            AND hold.lifted = 0 AND (hold.until IS NULL OR hold.placed_at <= :now AND :now < hold.until)
        )
      )
      AND NOT EXISTS (
        SELECT 1 FROM hold
        WHERE hold.lifted = 0 AND (hold.until IS NULL OR hold.placed_at <= :now AND :now < hold.until) AND (
          hold.scope = 'day' OR (hold.scope = 'convoy' AND hold.name = task.convoy)
          OR (hold.scope = 'task' AND hold.name = task.key) OR (hold.scope = 'repo' AND hold.name = task.repo)
        )
      )
    )
  )
ORDER BY task.priority DESC, task.position
LIMIT :limit
