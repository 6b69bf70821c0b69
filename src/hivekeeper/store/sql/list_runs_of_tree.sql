-- Runs that verified a tree, by whichever gate, oldest first: an owner is a tree and its gate.
SELECT {run} FROM run WHERE run.owner_kind = 'tree' AND run.owner >= :first AND run.owner < :last
ORDER BY run.intended_seq, run.id
