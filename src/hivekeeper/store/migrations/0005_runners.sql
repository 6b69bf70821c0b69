-- What agent programs need: how each session ended and what it used, attempts that wait for a limit, what is held up and
-- by what, who may take a prompt, what was allowed to be spent, and which configuration of a repository is trusted.

-- A state more, which only a new table can allow.
CREATE TABLE attempt_next (
  task TEXT NOT NULL REFERENCES task (key),
  number INTEGER NOT NULL,
  convoy TEXT NOT NULL,
  swarm INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  sandbox TEXT NOT NULL CHECK (sandbox IN ('NONE', 'PRESENT', 'REMOVED')),
  state TEXT NOT NULL
    CHECK (state IN ('WORKING', 'PARKED', 'SUBMITTED', 'SUCCEEDED', 'FAILED', 'UNKNOWN', 'CANCELLED')),
  reason TEXT NOT NULL DEFAULT '',
  started_at TEXT NOT NULL,
  ended_at TEXT,
  commit_id TEXT,
  start TEXT,
  parked_at TEXT,
  PRIMARY KEY (task, number),
  CHECK ((state IN ('WORKING', 'PARKED', 'SUBMITTED')) = (ended_at IS NULL))
);
INSERT INTO attempt_next (
  task, number, convoy, swarm, worker, sandbox, state, reason, started_at, ended_at, commit_id, start
) SELECT
  task, number, convoy, swarm, worker, sandbox, state, reason, started_at, ended_at, commit_id, start
FROM attempt;
DROP TABLE attempt;
ALTER TABLE attempt_next RENAME TO attempt;
CREATE INDEX attempt_open ON attempt (state) WHERE state IN ('WORKING', 'PARKED', 'SUBMITTED');
CREATE INDEX attempt_unswept ON attempt (ended_at) WHERE sandbox = 'PRESENT';
CREATE INDEX attempt_by_swarm ON attempt (convoy, swarm, state);

ALTER TABLE run ADD COLUMN runner TEXT;
ALTER TABLE run ADD COLUMN session TEXT;
ALTER TABLE run ADD COLUMN outcome TEXT;
ALTER TABLE run ADD COLUMN words TEXT;
ALTER TABLE run ADD COLUMN tokens_in INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN tokens_out INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN microusd INTEGER NOT NULL DEFAULT 0;
ALTER TABLE run ADD COLUMN retry_at TEXT;
ALTER TABLE run ADD COLUMN reported_at TEXT;
ALTER TABLE run ADD COLUMN kill_cause TEXT;
CREATE INDEX run_unread ON run (id) WHERE runner IS NOT NULL AND outcome IS NULL;
CREATE INDEX run_paid ON run (ended_at) WHERE runner IS NOT NULL;

ALTER TABLE convoy ADD COLUMN budget TEXT NOT NULL DEFAULT '{}';
ALTER TABLE repo ADD COLUMN pinned TEXT;
ALTER TABLE repo ADD COLUMN pinned_files TEXT NOT NULL DEFAULT '[]';

CREATE TABLE task_runner (
  task TEXT NOT NULL REFERENCES task (key),
  rank INTEGER NOT NULL,
  runner TEXT NOT NULL,
  PRIMARY KEY (task, rank)
);
INSERT INTO task_runner (task, rank, runner)
SELECT key, 0, json_extract(details, '$.runner') FROM task WHERE json_type(details, '$.runner') = 'text';

CREATE TABLE hold (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  cause TEXT NOT NULL,
  until TEXT,
  strikes INTEGER NOT NULL,
  why TEXT NOT NULL,
  placed_at TEXT NOT NULL,
  lifted INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (scope, name)
);

CREATE TABLE budget (
  scope TEXT NOT NULL,
  name TEXT NOT NULL,
  tokens INTEGER,
  microusd INTEGER,
  PRIMARY KEY (scope, name)
);

DELETE FROM checkpoint;
