-- A task without a prompt, or one whose prompt may be given to somebody now: nothing holds up what it belongs to, and not
-- everybody who may take it. The same is decided of one task by `may_start` (domain/session.py); a test compares them.

(
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
