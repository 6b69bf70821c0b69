-- What tasks that landed have cost by repository and runner: how many they are, tokens, money and attempts of them all.
SELECT repo, runner, count(*), sum(tokens), sum(microusd), sum(attempts) FROM (
  SELECT task.repo, run.runner, task.attempts, sum(run.tokens_in + run.tokens_out) AS tokens, sum(run.microusd) AS microusd
  FROM run JOIN task ON task.key = run.task
  WHERE run.runner IS NOT NULL AND run.kind = 'agent' AND task.repo IS NOT NULL AND task.commit_id IS NOT NULL
  GROUP BY task.key, run.runner
) GROUP BY repo, runner ORDER BY repo, runner
