-- The batches of a convoy, with how many attempts each had and how many of them succeeded or still work.
SELECT {swarm}, count(attempt.number),
  sum(CASE WHEN attempt.state = 'SUCCEEDED' THEN 1 ELSE 0 END),
  sum(CASE WHEN {is_open:attempt} THEN 1 ELSE 0 END),
  min(attempt.worker), max(attempt.worker)
FROM swarm LEFT JOIN attempt ON attempt.convoy = swarm.convoy AND attempt.swarm = swarm.number
WHERE swarm.convoy = :convoy
GROUP BY swarm.convoy, swarm.number, swarm.state, swarm.opened_at, swarm.closed_at ORDER BY swarm.number
