-- A task without a prompt, or one whose prompt may be given to a runner now: nothing that it belongs to is held, and at
-- least one of its runners is not. Runners that this hive does not have count only where it has none of a task's; `,` for
-- :runners means that nobody knows. The same is decided of one task by `may_start` (domain/admission.py);
-- tests/property/test_admission.py compares the two.

(
  NOT EXISTS (SELECT 1 FROM task_runner WHERE task_runner.task = task.key)
  OR (
    EXISTS (
      SELECT 1 FROM task_runner WHERE task_runner.task = task.key
        AND NOT EXISTS (
          SELECT 1 FROM hold WHERE hold.scope = 'runner' AND hold.name = task_runner.runner
            AND hold.lifted = 0 AND (hold.until IS NULL OR hold.placed_at <= :now AND :now < hold.until)
        )
        AND (
          instr(:runners, ',' || task_runner.runner || ',') > 0
          OR NOT EXISTS (
            SELECT 1 FROM task_runner AS other WHERE other.task = task.key
              AND instr(:runners, ',' || other.runner || ',') > 0
          )
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
