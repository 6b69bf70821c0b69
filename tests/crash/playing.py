"""What a scenario is, how far one is played, and what it can be played up to."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from hivekeeper.domain.states import AttemptState, MergeState, RepoState, TaskState
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from tests.crash.mutants import Mutant
from tests.crash.stage import Play

Act = Callable[[Play], None]


@dataclass(frozen=True)
class Scenario:
    """What happens before, what is killed, how the hive is brought to its end afterwards, and how that is judged.

    Every end is judged by `Play.check`; a scenario may ask for more.
    """

    name: str
    what: str
    given: Act
    act: Act
    recover: Act = Play.finish
    check: Callable[[Play], list[str]] = lambda _stage: []
    planted: tuple[Mutant, ...] = ()
    is_sure: bool = True  # what its tasks come to does not depend on the moment
    by_git: bool = False  # killed inside git, which the keeper started, instead of in the keeper itself


SCENARIOS: dict[str, Scenario] = {}


def scenario(name: str, what: str, *, given: Act, act: Act, **more: Any) -> None:  # noqa: ANN401 - fields of Scenario
    """Declare a scenario, in one place: what is given, what is struck, what is promised, and bugs that break it."""
    assert name not in SCENARIOS, f"there are two scenarios {name}"
    planted = tuple(replace(mutant, scenario=name) for mutant in more.pop("planted", ()))
    SCENARIOS[name] = Scenario(name, what, given, act, planted=planted, **more)


def play_until(stage: Play, condition: Callable[[Keeper], bool]) -> None:
    with stage.keeper() as keeper:
        stage.play(keeper, lambda: condition(keeper))


def is_ready(keeper: Keeper) -> bool:
    with keeper.hive.ledger.read() as connection:
        return all(repo.state is RepoState.READY for repo in queries.list_repos(connection))


def is_submitted(keeper: Keeper) -> bool:
    with keeper.hive.ledger.read() as connection:
        return bool(queries.list_open_attempts(connection, AttemptState.SUBMITTED))


def is_landing(keeper: Keeper) -> bool:
    with keeper.hive.ledger.read() as connection:
        return any(entry.state is MergeState.LANDING for entry in queries.list_open_merges(connection))


def has_landed(keeper: Keeper) -> bool:
    with keeper.hive.ledger.read() as connection:
        return bool(queries.list_tasks_in_state(connection, TaskState.COMPLETE))


def fetch(stage: Play) -> None:
    play_until(stage, is_ready)


def is_intended(kind: str, times: int = 1) -> Callable[[Keeper], bool]:
    def is_so(keeper: Keeper) -> bool:
        with keeper.hive.ledger.read() as connection:
            return sum(run.kind == kind for run in queries.list_open_runs(connection)) >= times

    return is_so


def list_submitted(keeper: Keeper) -> list[str]:
    with keeper.hive.ledger.read() as connection:
        return [task.key for _, task in queries.list_open_attempts(connection, AttemptState.SUBMITTED)]
