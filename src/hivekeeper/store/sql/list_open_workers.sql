-- The attempts under way of the workers with a number, one in each convoy.
SELECT {attempt} FROM attempt WHERE {is_open:attempt} AND attempt.worker = :worker ORDER BY attempt.task
