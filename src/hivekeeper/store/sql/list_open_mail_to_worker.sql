-- Messages to the worker of a task that nobody has handled or returned, oldest first.
SELECT {mail} FROM mail WHERE {is_open:mail} AND mail.task = :task
  AND instr(:addresses, ',' || mail.receiver || ',') = 0 ORDER BY mail.seq
