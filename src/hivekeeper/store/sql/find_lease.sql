-- Who holds, or held last, the coordinator's lease.
SELECT {lease} FROM lease WHERE id = 1
