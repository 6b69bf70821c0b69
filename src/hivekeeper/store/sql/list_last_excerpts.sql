-- The last excerpts of a role in each of some documents, the newest document first.

SELECT document.task, document.attempt, document.name, excerpt.role, excerpt.text, excerpt.position, excerpt.at
FROM json_each(:documents) AS wanted
JOIN document ON document.id = wanted.value
JOIN excerpt ON excerpt.id IN (
  SELECT id FROM excerpt
  WHERE role = :role AND id BETWEEN document.id << 32 AND (document.id << 32) + 4294967295
  ORDER BY id DESC
  LIMIT :each
)
ORDER BY wanted.key, excerpt.id DESC
LIMIT :limit
