-- How many messages of an attempt were refused, of which a person may have requeued some.
SELECT count(*) FROM mail WHERE origin = :origin AND state IN ('QUARANTINED', 'RETURNED', 'DROPPED')
