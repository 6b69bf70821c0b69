-- PENDING -> IN_PROGRESS: tasks of active convoys whose repository is ready and whose predecessors are all COMPLETE,
-- by priority and then in the order they were asked for; an agent has one session at a time. Conditions on other tables are EXISTS, so that the index on
-- (state, priority, position) gives the order and the scan ends at the limit.
SELECT {task} FROM task
WHERE task.state = 'PENDING'
  AND EXISTS (SELECT 1 FROM convoy WHERE convoy.name = task.convoy AND convoy.state = 'ACTIVE')
  AND (task.repo IS NULL OR EXISTS (SELECT 1 FROM repo WHERE repo.name = task.repo AND repo.state = 'READY'))
  AND (task.agent IS NULL OR NOT EXISTS (
    SELECT 1 FROM attempt WHERE attempt.agent = task.agent AND attempt.state IN ('WORKING', 'PARKED')
  ))
  AND (task.recommended IS NULL OR NOT EXISTS (
    SELECT 1 FROM attempt WHERE attempt.agent = task.recommended AND attempt.state IN ('WORKING', 'PARKED')
  ))
  AND {is_unblocked}
  AND {is_next_to_be_remade}
  AND {is_admitted}
ORDER BY task.priority DESC, task.position
LIMIT :limit
