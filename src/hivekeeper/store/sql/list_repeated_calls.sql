-- The calls that were made most often in some documents, of the newest thousands, each at its last place.

SELECT document.task, document.attempt, document.name, excerpt.role,
  excerpt.text || iif(repeated.times > 1, ' (' || repeated.times || ' times)', ''), excerpt.position, excerpt.at
FROM (
  SELECT max(id) AS id, count(*) AS times FROM (
    SELECT id, text FROM excerpt
    WHERE role = 'called' AND id >> 32 IN (SELECT value FROM json_each(:documents))
    ORDER BY id DESC
    LIMIT 5000
  )
  GROUP BY text
  ORDER BY times DESC, id DESC
  LIMIT :limit
) AS repeated
JOIN excerpt ON excerpt.id = repeated.id
JOIN document ON document.id = repeated.id >> 32
ORDER BY repeated.times DESC, repeated.id DESC
