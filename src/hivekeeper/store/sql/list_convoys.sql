-- Convoys in these states, oldest first.
SELECT {convoy} FROM convoy WHERE state IN ('ACTIVE', 'COMPLETE', 'FAILED') OR :archived = 1 ORDER BY submitted_at
