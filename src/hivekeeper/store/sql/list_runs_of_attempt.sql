-- Runs of one attempt, oldest first.
SELECT {run} FROM run WHERE task = :task AND attempt = :attempt ORDER BY intended_seq, id
