-- At which events a state was put by, oldest first.
SELECT seq FROM checkpoint ORDER BY seq
