-- Messages to workers that were not delivered and cannot be: their task has ended for good.
SELECT {mail} FROM mail JOIN task ON task.key = mail.task
WHERE mail.state = 'ACCEPTED' AND task.state IN ('COMPLETE', 'CANCELLED')
  AND instr(:addresses, ',' || mail.receiver || ',') = 0 ORDER BY mail.seq
