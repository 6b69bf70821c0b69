-- Everything that happened to one subject.
SELECT {event} FROM event WHERE subject = :subject ORDER BY seq
