-- How much is under way in the whole hive: active convoys, open attempts, open runs.
SELECT
  (SELECT count(*) FROM convoy WHERE state = 'ACTIVE'),
  (SELECT count(*) FROM attempt WHERE state IN ('WORKING', 'PARKED', 'SUBMITTED')),
  (SELECT count(*) FROM run WHERE state IN ('INTENDED', 'RUNNING'))
