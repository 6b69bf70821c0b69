-- How far a reader of the log has come.
SELECT name, seq, moved_at FROM cursor WHERE name = :name
