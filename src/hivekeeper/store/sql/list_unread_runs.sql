-- Runs of agent programs that have not been read to their end.
SELECT {run} FROM run WHERE run.runner IS NOT NULL AND run.outcome IS NULL ORDER BY run.id
