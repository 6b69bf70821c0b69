-- Messages of a task that nobody has handled or returned, oldest first.
SELECT {mail} FROM mail WHERE {is_open:mail} AND mail.task = :task ORDER BY mail.seq
