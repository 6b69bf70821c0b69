"""What SQL chooses among many tasks is what the decision about each of them says."""

from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.clock import to_seconds, to_text
from hivekeeper.commands.sessions import lift_hold, place_hold
from hivekeeper.domain.admission import Admitted, may_start, need_of_task
from hivekeeper.domain.budget import DAY
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.domain.session import Hold
from hivekeeper.store import queries
from tests.property.budget import MEMORY, PATIENCE, tries
from tests.store.ledger_world import World

pytestmark = PATIENCE
RUNNERS = ("claude", "codex")
HERE = (*RUNNERS, "mine")
TASKS = {
    "command": TaskSpec("command", "true"),
    "prompt": TaskSpec("prompt", prompt="do it", runner="claude"),
    "either": TaskSpec("either", prompt="do it", runner=RUNNERS),
    "one-unknown": TaskSpec("one-unknown", prompt="do it", runner=("codex", "elsewhere")),
    "unknown": TaskSpec("unknown", prompt="do it", runner="elsewhere"),
    "on-a-repository": TaskSpec("on-a-repository", prompt="do it", runner="codex", repo="r"),
}
NAMES = {
    "runner": st.sampled_from([*RUNNERS, "elsewhere"]),
    "task": st.sampled_from([f"c/{name}" for name in TASKS]),
    "convoy": st.sampled_from(["c", "other"]),
    "day": st.just(DAY),
    "repo": st.sampled_from(["r", "s"]),
}
HOLDS = st.sampled_from(sorted(NAMES)).flatmap(
    lambda scope: st.tuples(
        st.just(scope),
        NAMES[scope],
        st.sampled_from(["rate-limited", "budget"]),
        st.none() | st.sampled_from([5.0, 500.0]),
        st.booleans(),
    )
)


@given(holds=st.lists(HOLDS, max_size=5), later_s=st.sampled_from([-1000.0, 0.0, 50.0]))
@tries(60)
def test_what_may_start_is_the_same_in_sql_and_for_each_task(
    holds: list[tuple[str, str, str, float | None, bool]], later_s: float
) -> None:
    with TemporaryDirectory(dir=MEMORY) as directory:
        world = World(Path(directory))
        try:
            world.submit("c", *TASKS.values(), repos=(RepoSpec("r", "/repos/r"),))
            world.fetch()
            with world.keep() as tx:
                for scope, name, cause, in_s, is_lifted in holds:
                    place_hold(tx, Hold(scope, name, cause, in_s, 1), why="because")
                    if is_lifted:
                        lift_hold(tx, scope, name, cause=cause)
                now = to_text(to_seconds(tx.now) + later_s)
            with world.ledger.read() as connection:
                chosen = {task.id for task in queries.list_ready_tasks(connection, 99, now=now, runners=HERE)}
                rows, found = queries.list_tasks_of_convoy(connection, "c"), queries.list_holds(connection)
            free = {
                row.id
                for row in rows
                if not row.runners or isinstance(may_start(need_of_task(row, HERE), found, now), Admitted)
            }
            assert chosen == free
        finally:
            world.close()
