-- Every try at a task.
SELECT {attempt} FROM attempt WHERE task = :task ORDER BY number
