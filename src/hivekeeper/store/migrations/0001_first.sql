-- The ledger's first shape: one head row, the log, and the tables that project() keeps.
-- Only TEXT and INTEGER columns and plain constraints, so that the same text serves PostgreSQL.

-- Moved first in every write transaction: total order, no gaps, hash chain and fence.
CREATE TABLE head (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  seq INTEGER NOT NULL CHECK (seq >= 0),
  hash TEXT NOT NULL,
  epoch INTEGER NOT NULL CHECK (epoch >= 0),
  hive TEXT NOT NULL
);

CREATE TABLE event (
  seq INTEGER PRIMARY KEY CHECK (seq >= 1),
  kind TEXT NOT NULL,
  subject TEXT NOT NULL,
  data TEXT NOT NULL,
  who TEXT NOT NULL,
  why TEXT NOT NULL,
  occurred_at TEXT NOT NULL,
  recorded_at TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  hash TEXT NOT NULL
);

-- An observation, not a projection: overwritten, never in the log, never replayed.
CREATE TABLE heartbeat (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  epoch INTEGER NOT NULL,
  at TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  monotonic_ms INTEGER NOT NULL
);

CREATE TABLE lease (
  id INTEGER PRIMARY KEY CHECK (id = 1),
  holder TEXT NOT NULL,
  epoch INTEGER NOT NULL,
  pid INTEGER NOT NULL,
  start_ticks INTEGER NOT NULL,
  boot_id TEXT NOT NULL,
  taken_at TEXT NOT NULL,
  released_at TEXT
);

CREATE TABLE repo (
  name TEXT PRIMARY KEY,
  path TEXT NOT NULL,
  branch TEXT NOT NULL,
  verify TEXT,
  state TEXT NOT NULL CHECK (state IN ('FETCHING', 'READY', 'FAILED')),
  fetches INTEGER NOT NULL,
  integration TEXT,
  problem TEXT,
  publishing TEXT,
  published TEXT,
  publications INTEGER NOT NULL DEFAULT 0,
  publish_problem TEXT,
  publish_retry_at TEXT,
  CHECK (state <> 'READY' OR integration IS NOT NULL),
  CHECK ((state = 'FAILED') = (problem IS NOT NULL))
);

CREATE TABLE convoy (
  name TEXT PRIMARY KEY,
  pipeline TEXT NOT NULL UNIQUE,
  state TEXT NOT NULL CHECK (state IN ('ACTIVE', 'COMPLETE', 'FAILED', 'ARCHIVED')),
  submitted_at TEXT NOT NULL,
  ended_at TEXT,
  archived_at TEXT,
  workers INTEGER NOT NULL DEFAULT 0,
  swarms INTEGER NOT NULL DEFAULT 0,
  CHECK ((state = 'ACTIVE') = (ended_at IS NULL)),
  CHECK ((state = 'ARCHIVED') = (archived_at IS NOT NULL))
);
CREATE INDEX convoy_by_state ON convoy (state);

CREATE TABLE swarm (
  convoy TEXT NOT NULL REFERENCES convoy (name),
  number INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('OPEN', 'CLOSED')),
  opened_at TEXT NOT NULL,
  closed_at TEXT,
  PRIMARY KEY (convoy, number),
  CHECK ((state = 'CLOSED') = (closed_at IS NOT NULL))
);
CREATE INDEX swarm_open ON swarm (convoy, number) WHERE state = 'OPEN';

CREATE TABLE task (
  key TEXT PRIMARY KEY,
  convoy TEXT NOT NULL REFERENCES convoy (name),
  id TEXT NOT NULL,
  title TEXT NOT NULL,
  command TEXT NOT NULL,
  repo TEXT REFERENCES repo (name),
  verify TEXT,
  priority INTEGER NOT NULL,
  attempts INTEGER NOT NULL DEFAULT 0,
  attempts_planned INTEGER NOT NULL,
  attempts_allowed INTEGER NOT NULL,
  output TEXT,
  idempotent INTEGER NOT NULL CHECK (idempotent IN (0, 1)),
  limits TEXT NOT NULL,
  state TEXT NOT NULL
    CHECK (state IN ('PENDING', 'IN_PROGRESS', 'CANCELLING', 'COMPLETE', 'FAILED', 'UNKNOWN', 'CANCELLED')),
  position INTEGER NOT NULL,
  reason TEXT NOT NULL DEFAULT '',
  added_at TEXT NOT NULL,
  dispatched_at TEXT,
  completed_at TEXT,
  commit_id TEXT,
  output_path TEXT,
  CHECK (attempts <= attempts_allowed),
  CHECK ((state = 'COMPLETE') = (completed_at IS NOT NULL)),
  CHECK (state IN ('PENDING', 'CANCELLED') OR dispatched_at IS NOT NULL)
);
CREATE INDEX task_by_state ON task (state, priority DESC, position);
CREATE INDEX task_by_convoy ON task (convoy, state);

CREATE TABLE task_after (
  task TEXT NOT NULL REFERENCES task (key),
  after TEXT NOT NULL,
  PRIMARY KEY (task, after)
);
CREATE INDEX task_after_by_after ON task_after (after);

CREATE TABLE attempt (
  task TEXT NOT NULL REFERENCES task (key),
  number INTEGER NOT NULL,
  convoy TEXT NOT NULL,
  swarm INTEGER NOT NULL,
  worker INTEGER NOT NULL,
  sandbox TEXT NOT NULL CHECK (sandbox IN ('NONE', 'PRESENT', 'REMOVED')),
  state TEXT NOT NULL CHECK (state IN ('WORKING', 'SUBMITTED', 'SUCCEEDED', 'FAILED', 'UNKNOWN', 'CANCELLED')),
  reason TEXT NOT NULL DEFAULT '',
  started_at TEXT NOT NULL,
  ended_at TEXT,
  commit_id TEXT,
  PRIMARY KEY (task, number),
  CHECK ((state IN ('WORKING', 'SUBMITTED')) = (ended_at IS NULL))
);
CREATE INDEX attempt_open ON attempt (state) WHERE state IN ('WORKING', 'SUBMITTED');
CREATE INDEX attempt_unswept ON attempt (ended_at) WHERE sandbox = 'PRESENT';
CREATE INDEX attempt_by_swarm ON attempt (convoy, swarm, state);

CREATE TABLE merge_entry (
  task TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  repo TEXT NOT NULL REFERENCES repo (name),
  commit_id TEXT NOT NULL,
  priority INTEGER NOT NULL,
  position INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('QUEUED', 'VERIFYING', 'LANDING', 'LANDED', 'REJECTED', 'WITHDRAWN')),
  round INTEGER NOT NULL DEFAULT 0,
  base TEXT,
  candidate TEXT,
  tree TEXT,
  reason TEXT NOT NULL DEFAULT '',
  queued_at TEXT NOT NULL,
  ended_at TEXT,
  PRIMARY KEY (task, attempt),
  CHECK (state NOT IN ('VERIFYING', 'LANDING', 'LANDED') OR (base IS NOT NULL AND candidate IS NOT NULL)),
  CHECK ((state IN ('LANDED', 'REJECTED', 'WITHDRAWN')) = (ended_at IS NOT NULL))
);
CREATE INDEX merge_entry_open ON merge_entry (repo, priority DESC, position)
  WHERE state IN ('QUEUED', 'VERIFYING', 'LANDING');

CREATE TABLE run (
  id TEXT PRIMARY KEY,
  kind TEXT NOT NULL,
  task TEXT,
  attempt INTEGER,
  repo TEXT,
  argv TEXT NOT NULL,
  directory TEXT NOT NULL,
  environment TEXT NOT NULL,
  limits TEXT NOT NULL,
  boot_id TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('INTENDED', 'RUNNING', 'EXITED', 'LOST')),
  pid INTEGER,
  start_ticks INTEGER,
  exit_status INTEGER,
  ended_by TEXT,
  output_bytes INTEGER,
  reason TEXT NOT NULL DEFAULT '',
  intended_at TEXT NOT NULL,
  started_at TEXT,
  ended_at TEXT,
  kill_requested_at TEXT,
  CHECK (state <> 'RUNNING' OR pid IS NOT NULL),
  CHECK ((state = 'EXITED') = (exit_status IS NOT NULL)),
  CHECK ((state IN ('EXITED', 'LOST')) = (ended_at IS NOT NULL))
);
-- Only open runs: the index stays small however long the history, and an ended run leaves it.
CREATE INDEX run_open ON run (state) WHERE state IN ('INTENDED', 'RUNNING');
CREATE INDEX run_by_attempt ON run (task, attempt);
