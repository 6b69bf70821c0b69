-- Whether a task, or what is said to its worker, has changed since an event.
SELECT EXISTS (SELECT 1 FROM event WHERE event.subject = :task AND event.seq > :seq)
  OR EXISTS (
    SELECT 1 FROM mail WHERE mail.seq > :seq AND {is_open:mail}
      AND (mail.task = :task OR (mail.task IS NULL AND mail.receiver = :agent))
  )
