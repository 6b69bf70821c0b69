-- Messages that were not delivered yet, oldest first.
SELECT {mail} FROM mail WHERE mail.state = 'ACCEPTED' ORDER BY mail.seq LIMIT :limit
