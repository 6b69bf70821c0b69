-- The last state put by at or before an event.
SELECT seq, data FROM checkpoint WHERE seq <= :seq ORDER BY seq DESC LIMIT 1
