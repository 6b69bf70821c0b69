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

-- Which came first is told by the numbers of events: a clock may be set back.
ALTER TABLE run ADD COLUMN intended_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN reported_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE message ADD COLUMN seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE hold ADD COLUMN placed_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE attempt ADD COLUMN parked_seq INTEGER NOT NULL DEFAULT 0;
ALTER TABLE convoy ADD COLUMN opened_seq INTEGER NOT NULL DEFAULT 0;

UPDATE run SET
  intended_seq = coalesce((SELECT max(seq) FROM event WHERE kind = 'run.intended' AND subject = run.id), 0),
  reported_seq = coalesce((SELECT max(seq) FROM event WHERE kind = 'run.reported' AND subject = run.id), 0);
UPDATE convoy SET opened_seq = coalesce((
  SELECT max(seq) FROM event WHERE kind IN ('convoy.submitted', 'convoy.extended') AND subject = convoy.name
), 0);
UPDATE message SET seq = coalesce((
  SELECT max(seq) FROM event
  WHERE kind IN ('message.sent', 'worker.told') AND json_extract(data, '$.message') = message.id
), 0);
UPDATE hold SET placed_seq = coalesce((
  SELECT max(seq) FROM event
  WHERE kind = 'hold.placed' AND json_extract(data, '$.scope') = hold.scope AND json_extract(data, '$.name') = hold.name
), 0);
UPDATE attempt SET parked_seq = coalesce((
  SELECT max(seq) FROM event
  WHERE kind = 'attempt.parked' AND subject = attempt.task AND json_extract(data, '$.attempt') = attempt.number
), 0);
