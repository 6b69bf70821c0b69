-- What agent programs used on a day; a run that a clock far ahead dated is of another day.
SELECT sum(run.tokens_in), sum(run.tokens_out), sum(run.microusd) FROM run
WHERE run.runner IS NOT NULL AND run.ended_at >= :first AND run.ended_at < :beyond
