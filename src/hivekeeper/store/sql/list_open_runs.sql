-- Runs that may be doing something: INTENDED -> RUNNING -> EXITED | LOST.
SELECT {run} FROM run WHERE state IN ('INTENDED', 'RUNNING') ORDER BY intended_seq, id
