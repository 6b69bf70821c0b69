-- What makes the past quick to find: events by subject, how far each reader of the log has come, states put by.
-- Readers' places and states put by are no projections: never in the log, never replayed.

CREATE INDEX event_by_subject ON event (subject, seq);

CREATE TABLE cursor (
  name TEXT PRIMARY KEY,
  seq INTEGER NOT NULL CHECK (seq >= 0),
  moved_at TEXT NOT NULL
);

-- A cache that can be thrown away; a later migration that changes a projected table does so.
CREATE TABLE checkpoint (
  seq INTEGER PRIMARY KEY CHECK (seq >= 1),
  recorded_at TEXT NOT NULL,
  data TEXT NOT NULL
);
