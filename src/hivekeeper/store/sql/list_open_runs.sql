-- Runs that may be doing something: INTENDED -> RUNNING -> EXITED | LOST.
SELECT {run} FROM run WHERE {is_open:run} ORDER BY intended_seq, id
