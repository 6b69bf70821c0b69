-- What the hive had to say to an attempt, oldest first.
SELECT {message} FROM message WHERE message.task = :task AND message.attempt = :attempt ORDER BY message.seq
