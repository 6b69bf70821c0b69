-- Messages by what is asked of them, newest first; '' asks for nothing. A message's task begins with its convoy.
SELECT {mail} FROM mail
WHERE (:task = '' OR mail.task = :task) AND (:type = '' OR mail.type = :type) AND (:state = '' OR mail.state = :state)
  AND (:address = '' OR mail.sender = :address OR mail.receiver = :address)
  AND (:since = '' OR mail.sent_at >= :since) AND (:until = '' OR mail.sent_at < :until)
  AND (:before IS NULL OR mail.seq < :before)
  AND (:words = '' OR instr(lower(mail.payload), :words) > 0)
ORDER BY mail.seq DESC LIMIT :limit
