-- Messages in a state in which a person should know of them, newest first: of those dropped, that a task is open.
-- What was quarantined has no type, and was dropped by a person, who need not be told.
SELECT {mail} FROM mail
WHERE mail.state = :state AND mail.state IN ('QUARANTINED', 'DROPPED')
  AND (mail.state = 'QUARANTINED' OR (mail.type <> '?' AND EXISTS (
    SELECT 1 FROM task WHERE task.key = mail.task AND task.state IN ('PENDING', 'IN_PROGRESS', 'CANCELLING')
  )))
ORDER BY mail.seq DESC LIMIT :limit
