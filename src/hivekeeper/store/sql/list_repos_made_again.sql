-- Repositories in which something that landed is being made again, on what the person's branch is now.
SELECT DISTINCT repo FROM task
WHERE state IN ('PENDING', 'IN_PROGRESS') AND json_extract(details, '$.branch') IS NOT NULL
  AND json_extract(details, '$.remakes') IS NOT NULL
