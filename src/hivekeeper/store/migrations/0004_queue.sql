-- What the merge queue needs: failures that count, how a conflict was settled, what waits for a person, queues that
-- stand still, and messages.

ALTER TABLE merge_entry ADD COLUMN tier TEXT NOT NULL DEFAULT 'clean';
ALTER TABLE merge_entry ADD COLUMN failures INTEGER NOT NULL DEFAULT 0;
ALTER TABLE merge_entry ADD COLUMN failed_run TEXT;
ALTER TABLE merge_entry ADD COLUMN flakes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE merge_entry ADD COLUMN resolved TEXT;
ALTER TABLE merge_entry ADD COLUMN held TEXT;
ALTER TABLE merge_entry ADD COLUMN approved INTEGER NOT NULL DEFAULT 0;

ALTER TABLE repo ADD COLUMN paused INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repo ADD COLUMN resumptions INTEGER NOT NULL DEFAULT 0;
ALTER TABLE repo ADD COLUMN stopped TEXT;

-- Few tasks are branches of a person's, and they wait for no worker.
CREATE INDEX task_branch ON task (state) WHERE json_extract(details, '$.branch') IS NOT NULL;

CREATE TABLE message (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  task TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  body TEXT NOT NULL,
  sent_at TEXT NOT NULL
);
CREATE INDEX message_by_task ON message (task, attempt);

-- How a conflict was settled in something that landed, by the hash of its three sides.
CREATE TABLE resolution (
  hunk TEXT PRIMARY KEY,
  text TEXT NOT NULL,
  task TEXT NOT NULL
);

DELETE FROM checkpoint;
