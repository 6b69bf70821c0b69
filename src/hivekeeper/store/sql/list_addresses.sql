-- Addresses of agents that plans name, and of workers at work that have no other name.
SELECT DISTINCT agent FROM task WHERE agent IS NOT NULL
UNION
SELECT attempt.convoy || '.worker-' || attempt.worker FROM attempt WHERE {is_open:attempt}
