-- How a conflict was settled before.
SELECT text FROM resolution WHERE hunk = :hunk
