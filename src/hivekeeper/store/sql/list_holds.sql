-- Everything that is held up, or once was.
SELECT {hold} FROM hold ORDER BY hold.scope, hold.name
