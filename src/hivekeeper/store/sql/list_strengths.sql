-- The strengths that agents have and tasks ask for, each once.
SELECT strength.value FROM agent, json_each(agent.strengths) AS strength WHERE agent.retired_at IS NULL
UNION SELECT strength.value FROM task, json_each(task.details, '$.strengths') AS strength
ORDER BY 1
