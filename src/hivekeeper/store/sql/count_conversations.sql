-- How many conversations one has started with another in a span of time, each by any of its addresses; what was refused
-- started none.
SELECT count(*) FROM mail
WHERE sender IN (SELECT value FROM json_each(:senders)) AND receiver IN (SELECT value FROM json_each(:receivers))
  AND sent_at >= :since AND sent_at <= :until AND parent IS NULL AND state IN ('ACCEPTED', 'DELIVERED', 'HANDLED')
