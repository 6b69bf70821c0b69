-- How many conversations a sender has started with a receiver since a moment; what was refused started none.
SELECT count(*) FROM mail
WHERE sender = :sender AND receiver = :receiver AND sent_at >= :since AND parent IS NULL
  AND state IN ('ACCEPTED', 'DELIVERED', 'HANDLED')
