-- Messages that expect a reply and have none: nobody has sent one that was not refused.
SELECT {mail} FROM mail
WHERE {is_open:mail} AND mail.expects_reply AND mail.sent_at < :before
  AND NOT EXISTS (SELECT 1 FROM mail AS reply WHERE reply.parent = mail.id
                  AND reply.state IN ('ACCEPTED', 'DELIVERED', 'HANDLED'))
ORDER BY mail.seq
