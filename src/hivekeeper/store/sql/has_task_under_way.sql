-- Whether anything of a convoy is being worked on, merged or cancelled.
SELECT 1 FROM task WHERE convoy = :convoy AND state IN ('IN_PROGRESS', 'CANCELLING') LIMIT 1
