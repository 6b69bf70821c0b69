-- At which event a state was last put by, 0 when none was.
SELECT coalesce(max(seq), 0) FROM checkpoint
