-- What agent programs used for a task.
SELECT sum(run.tokens_in), sum(run.tokens_out), sum(run.microusd) FROM run
WHERE run.task = :task AND run.runner IS NOT NULL
