-- Messages that nobody has handled or returned, oldest first.
SELECT {mail} FROM mail WHERE {is_open:mail} ORDER BY mail.seq
