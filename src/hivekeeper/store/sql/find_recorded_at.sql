-- When an event was written down.
SELECT recorded_at FROM event WHERE seq = :seq
