-- The last of so many tries to push what an attempt made to a second repository, where it failed, of convoys in sight.
SELECT {run} FROM convoy JOIN attempt ON attempt.convoy = convoy.name
JOIN run ON run.task = attempt.task AND run.attempt = attempt.number AND run.kind = 'backup' AND run.number = :tries
WHERE convoy.state <> 'ARCHIVED' AND run.state IN ('EXITED', 'LOST')
  AND NOT (run.state = 'EXITED' AND run.exit_status = 0 AND run.ended_by = 'exit')
ORDER BY attempt.task, attempt.number
