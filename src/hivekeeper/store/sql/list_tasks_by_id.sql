-- Tasks a person may mean by a bare id, in any convoy.
SELECT {task} FROM task WHERE id = :id ORDER BY position
