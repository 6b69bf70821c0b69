-- Convoys that were put away after one event and not after another; each convoy's few own events are looked at.
SELECT convoy.name FROM convoy CROSS JOIN event
WHERE convoy.state = 'ARCHIVED' AND event.subject = convoy.name AND event.kind = 'convoy.archived'
  AND event.seq > :after AND event.seq <= :until
ORDER BY convoy.name
