-- Messages that nobody has handled or returned, oldest first.
SELECT {mail} FROM mail WHERE {is_open:mail} AND (:task IS NULL OR mail.task = :task) ORDER BY mail.seq
