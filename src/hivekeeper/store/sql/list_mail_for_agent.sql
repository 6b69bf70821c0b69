-- Messages to an agent that came while it had no worker: the next one gets them.
SELECT {mail} FROM mail
WHERE mail.state = 'ACCEPTED' AND mail.task IS NULL AND mail.receiver = :agent ORDER BY mail.seq
