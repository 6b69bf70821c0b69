-- What workers need: prompts, what a task or repository says that few do, where an attempt began, what a run may touch.

-- Apart from the task, which is read often: a prompt may be megabytes, and only a worker reads it.
CREATE TABLE task_prompt (
  task TEXT PRIMARY KEY REFERENCES task (key),
  text TEXT NOT NULL
);

ALTER TABLE task ADD COLUMN details TEXT NOT NULL DEFAULT '{}';
ALTER TABLE repo ADD COLUMN details TEXT NOT NULL DEFAULT '{}';
ALTER TABLE convoy ADD COLUMN accept TEXT;
ALTER TABLE convoy ADD COLUMN opened_at TEXT;
ALTER TABLE attempt ADD COLUMN start TEXT;
ALTER TABLE run ADD COLUMN rooms TEXT;

-- When a convoy last became active.
UPDATE convoy SET opened_at = (
  SELECT MAX(event.occurred_at) FROM event
  WHERE event.subject = convoy.name AND event.kind IN ('convoy.submitted', 'convoy.extended')
);

DELETE FROM checkpoint;
