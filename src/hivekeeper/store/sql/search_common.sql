-- The newest excerpts of some documents that have these words: where nearly all have them, none is better than others.

SELECT document.task, document.attempt, document.name, excerpt.role, excerpt.text, excerpt.position, excerpt.at
FROM (
  SELECT rowid AS id FROM words
  WHERE words MATCH :words AND rowid >> 32 IN (SELECT value FROM json_each(:documents))
  ORDER BY rowid DESC
  LIMIT :limit
) AS found
JOIN excerpt ON excerpt.id = found.id
JOIN document ON document.id = found.id >> 32
ORDER BY excerpt.id DESC
