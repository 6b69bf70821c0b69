-- What became of agents' attempts, counted by agent, repository and verdict; those that landed after an earlier attempt
-- of the same agent are counted once more.
SELECT attempt.agent, coalesce(task.repo, ''), iif(attempt.state = 'SUCCEEDED', 'landed', attempt.verdict), count(*),
  sum(attempt.state = 'SUCCEEDED' AND EXISTS (
    SELECT 1 FROM attempt AS earlier
    WHERE earlier.task = attempt.task AND earlier.number < attempt.number AND earlier.agent = attempt.agent
  ))
FROM attempt JOIN task ON task.key = attempt.task
WHERE attempt.agent IS NOT NULL AND (attempt.state = 'SUCCEEDED' OR attempt.verdict <> '')
GROUP BY 1, 2, 3
