-- The repository of this name.
SELECT {repo} FROM repo WHERE name = :name
