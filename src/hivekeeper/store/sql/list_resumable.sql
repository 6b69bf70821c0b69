-- PARKED -> WORKING: parked attempts, with their tasks, that nothing holds up any more, the longest parked first.
SELECT {attempt}, {task} FROM attempt JOIN task ON task.key = attempt.task
WHERE attempt.state IN ('WORKING', 'PARKED', 'SUBMITTED') AND attempt.state = 'PARKED' AND (
  task.state = 'CANCELLING' OR (
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
)
ORDER BY task.state = 'CANCELLING' DESC, task.priority DESC, attempt.parked_seq
LIMIT :limit
