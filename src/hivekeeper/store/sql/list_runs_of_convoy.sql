-- Runs for a convoy as a whole, oldest first: no task's id begins with an underscore.
SELECT {run} FROM run WHERE run.id >= :first AND run.id < :last ORDER BY run.intended_seq, run.id
