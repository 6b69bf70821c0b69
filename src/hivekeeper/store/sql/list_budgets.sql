-- What a person has allowed beyond what was planned.
SELECT {budget} FROM budget ORDER BY budget.scope, budget.name
