-- Runs of agent programs since a moment, each with the agent its task is for.
SELECT {run}, task.agent FROM run LEFT JOIN task ON task.key = run.task
WHERE run.runner IS NOT NULL AND (:since = '' OR coalesce(run.ended_at, run.intended_at) >= :since)
ORDER BY run.intended_seq, run.id
