-- Waits are noted with their beginning, so that one noted by a wrong clock is known for it; a repository that cannot be
-- read is tried again later and later.

ALTER TABLE repo ADD COLUMN publish_failed_at TEXT;
ALTER TABLE repo ADD COLUMN fetch_problem TEXT;
ALTER TABLE repo ADD COLUMN fetch_failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repo ADD COLUMN fetch_failed_at TEXT;
ALTER TABLE repo ADD COLUMN fetch_retry_at TEXT;

UPDATE repo SET publish_failed_at = (
  SELECT occurred_at FROM event
  WHERE event.kind = 'repo.publish_failed' AND event.subject = repo.name ORDER BY seq DESC LIMIT 1
);

ALTER TABLE run ADD COLUMN waiting_since TEXT;
-- What a plan says for tasks that do not say it themselves.
ALTER TABLE convoy ADD COLUMN defaults TEXT NOT NULL DEFAULT '{}';
