-- Messages to the hive and to people that were not delivered yet, oldest first.
SELECT {mail} FROM mail
WHERE mail.state = 'ACCEPTED' AND instr(:addresses, ',' || mail.receiver || ',') > 0 ORDER BY mail.seq
