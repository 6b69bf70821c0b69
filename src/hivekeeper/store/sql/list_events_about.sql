-- Events about a subject and about everything beneath it (`convoy`, `convoy/task`, `convoy/task.1.agent`), in order.
SELECT seq, kind, subject, data, who, why, occurred_at, recorded_at, epoch, hash FROM event
WHERE seq IN (
  SELECT seq FROM event WHERE subject = :subject AND seq > :after AND seq <= :until
  UNION ALL
  SELECT seq FROM event WHERE subject >= :first AND subject < :beyond AND seq > :after AND seq <= :until
)
ORDER BY seq LIMIT :limit
