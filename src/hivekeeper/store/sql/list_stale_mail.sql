-- Messages to workers that were not delivered and cannot be: nobody will work on their task any more, or on any task of
-- the agent that they wait for. A task that failed may be tried again until its convoy is archived.
SELECT {mail} FROM mail
WHERE mail.state = 'ACCEPTED' AND instr(:addresses, ',' || mail.receiver || ',') = 0
  AND NOT EXISTS (
    SELECT 1 FROM task JOIN convoy ON convoy.name = task.convoy
    WHERE (task.key = mail.task OR (mail.task IS NULL AND task.agent = mail.receiver))
      AND task.state NOT IN ('COMPLETE', 'CANCELLED') AND convoy.state <> 'ARCHIVED'
  )
ORDER BY mail.seq
