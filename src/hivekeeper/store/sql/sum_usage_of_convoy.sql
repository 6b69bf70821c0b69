-- What agent programs used for all tasks of a convoy: their keys lie between two names.
SELECT sum(run.tokens_in), sum(run.tokens_out), sum(run.microusd) FROM run
WHERE run.task >= :first AND run.task < :beyond AND run.runner IS NOT NULL
