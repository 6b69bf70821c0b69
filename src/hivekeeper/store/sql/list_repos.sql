-- All repositories.
SELECT {repo} FROM repo ORDER BY name
