-- How many tasks of a convoy are in each state.
SELECT state, count(*) FROM task WHERE convoy = :convoy GROUP BY state
