-- The excerpts of some documents that have these words, the best first.

SELECT document.task, document.attempt, document.name, excerpt.role, excerpt.text, excerpt.position, excerpt.at
FROM (
  SELECT rowid AS id, rank FROM words
  WHERE words MATCH :words AND rowid >> 32 IN (SELECT value FROM json_each(:documents))
  ORDER BY rank
  LIMIT :limit
) AS found
JOIN excerpt ON excerpt.id = found.id
JOIN document ON document.id = found.id >> 32
ORDER BY found.rank, excerpt.id
