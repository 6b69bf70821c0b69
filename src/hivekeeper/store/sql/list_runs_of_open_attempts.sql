-- Runs of attempts that have not settled, oldest first.
SELECT {run} FROM attempt JOIN run ON run.task = attempt.task AND run.attempt = attempt.number
WHERE {is_open:attempt} AND attempt.state = :state
ORDER BY run.intended_seq, run.id
