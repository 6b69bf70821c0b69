-- The merge queue: entries that have neither landed nor been refused, in the order they will be taken.
SELECT {merge_entry} FROM merge_entry WHERE {is_open:merge_entry}
ORDER BY repo, priority DESC, position
