-- What agent programs used since a moment.
SELECT sum(run.tokens_in), sum(run.tokens_out), sum(run.microusd) FROM run
WHERE run.runner IS NOT NULL AND run.ended_at >= :since
