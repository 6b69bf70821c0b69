-- The merge queue: entries that have neither landed nor been refused, in the order they will be taken.
SELECT {merge_entry} FROM merge_entry WHERE state IN ('QUEUED', 'VERIFYING', 'LANDING')
ORDER BY repo, priority DESC, position
