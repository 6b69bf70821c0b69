-- The strengths that tasks ask for, each once.
SELECT DISTINCT strength.value FROM task, json_each(task.details, '$.strengths') AS strength ORDER BY strength.value
