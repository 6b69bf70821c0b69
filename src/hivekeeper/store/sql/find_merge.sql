-- One attempt's entry in the merge queue.
SELECT {merge_entry} FROM merge_entry WHERE task = :task AND attempt = :attempt
