-- Every reader of the log and how far it has come.
SELECT name, seq, moved_at FROM cursor ORDER BY name
