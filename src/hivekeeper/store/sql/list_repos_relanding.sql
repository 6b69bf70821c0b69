-- Repositories in which something that landed is being made again, on what the person's branch is now.
SELECT DISTINCT repo FROM task WHERE state IN ('PENDING', 'IN_PROGRESS') AND branch IS NOT NULL AND remakes IS NOT NULL
