-- The index of excerpts. The excerpts of a document have the numbers from id * 2^32 on, so that a search within some
-- documents needs to look at nothing but the numbers of what it finds.
CREATE TABLE document (
  id INTEGER PRIMARY KEY,
  task TEXT NOT NULL,
  attempt INTEGER NOT NULL,
  name TEXT NOT NULL,
  stamp TEXT NOT NULL,
  UNIQUE (task, attempt, name)
);
CREATE TABLE excerpt (
  id INTEGER PRIMARY KEY,
  role TEXT NOT NULL,
  position INTEGER NOT NULL,
  at TEXT NOT NULL,
  text TEXT NOT NULL
);
CREATE INDEX excerpt_by_role ON excerpt (role, id);
CREATE VIRTUAL TABLE words USING fts5 (text, content='', contentless_delete=1, tokenize='porter unicode61');
-- The last event of the ledger whose documents are in the index.
CREATE TABLE progress (id INTEGER PRIMARY KEY CHECK (id = 1), seq INTEGER NOT NULL);
INSERT INTO progress VALUES (1, 0);
