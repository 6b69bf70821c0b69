-- The log, and what makes it quick to read. The tables that events are projected into are declared by their rows
-- (domain/rows.py). Only TEXT and INTEGER columns and plain constraints, so that the same text serves PostgreSQL.

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
CREATE INDEX event_by_subject ON event (subject, seq);

-- The state at some events: a cache that can be thrown away.
CREATE TABLE checkpoint (
  seq INTEGER PRIMARY KEY CHECK (seq >= 1),
  recorded_at TEXT NOT NULL,
  data TEXT NOT NULL
);
