-- Messages, oldest first, for the inbox of a session that began before they were sent; a later one is told by its prompt,
-- and a command finds what workers wrote in its inbox whenever that was.
-- Of what the queue wants reworked only a next attempt is told, and of a hotfix only the attempt that it was meant for.
SELECT {mail}, run.attempt FROM mail
JOIN task ON task.key = mail.task
JOIN run ON run.task = task.key AND run.attempt = task.attempts AND run.kind = 'agent' AND run.state = 'RUNNING'
JOIN attempt ON attempt.task = run.task AND attempt.number = run.attempt AND attempt.sandbox = 'PRESENT'
WHERE mail.state = 'ACCEPTED' AND instr(:without, ',' || mail.task || ',') = 0
  AND (run.intended_seq < mail.seq OR (run.runner IS NULL AND mail.origin <> ''))
  AND (mail.type <> 'REWORK_REQUEST' OR mail.sender <> 'queue')
  AND (mail.type <> 'PRIORITY_MERGE' OR mail.attempt = task.attempts)
ORDER BY mail.seq LIMIT :limit
