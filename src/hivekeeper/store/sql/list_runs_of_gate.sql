-- Runs that verified trees, oldest first, by what their ids begin with.
SELECT {run} FROM run WHERE run.id >= :first AND run.id < :last ORDER BY run.intended_seq, run.id
