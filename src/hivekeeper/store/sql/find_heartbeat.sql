-- When the keeper was last known alive.
SELECT {heartbeat} FROM heartbeat WHERE id = 1
