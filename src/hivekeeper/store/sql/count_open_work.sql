-- How much is under way in the whole hive: active convoys, open attempts, open runs.
SELECT
  (SELECT count(*) FROM convoy WHERE state = 'ACTIVE'),
  (SELECT count(*) FROM attempt WHERE {is_open:attempt}),
  (SELECT count(*) FROM run WHERE {is_open:run})
