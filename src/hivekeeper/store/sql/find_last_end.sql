-- When the last task of a convoy was completed.
SELECT max(completed_at) FROM task WHERE convoy = :convoy
