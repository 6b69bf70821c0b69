-- OPEN -> CLOSED: batches without an open attempt that no task can join any more, because a later batch has begun or
-- the convoy has ended.
SELECT {swarm} FROM swarm JOIN convoy ON convoy.name = swarm.convoy
WHERE swarm.state = 'OPEN' AND (swarm.number < convoy.swarms OR convoy.state <> 'ACTIVE')
  AND NOT EXISTS (
    SELECT 1 FROM attempt WHERE attempt.convoy = swarm.convoy AND attempt.swarm = swarm.number
      AND {is_open:attempt}
  )
