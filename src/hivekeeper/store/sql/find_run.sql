-- The run with this id.
SELECT {run} FROM run WHERE id = :id
