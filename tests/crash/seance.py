"""Scenario of the historian: it dies at any moment while it collects what agents did, and answers what was asked."""

from collections.abc import Iterator
from pathlib import Path

from hivekeeper.domain.excerpt import Cited, Role
from hivekeeper.loops.historian import Historian
from hivekeeper.seance.collecting import find_known
from hivekeeper.store import queries
from hivekeeper.store.excerpts import ExcerptIndex
from tests.crash.playing import scenario
from tests.crash.stage import Play

_TASKS = ("work/a", "work/b")


def failed(stage: Play) -> None:
    """Attempts that have failed, of which nothing is collected yet."""
    stage.make_hive()
    command = f"{stage.mark} && echo 'the heron is away' >&2 && false"
    stage.submit(*(stage.task(name, command=command, attempts=2) for name in "ab"))
    stage.finish()
    for path in stage.places.hive.glob("seance.db*"):
        path.unlink()


def collect(stage: Play) -> None:
    with stage.keeper() as keeper:
        collector = next(loop for loop in keeper.loops if isinstance(loop, Historian))
        stage.play(keeper, lambda: stage.places.seance.exists() and collector.run_once() == {})


def check(stage: Play) -> list[str]:
    """Look for what was not collected, or twice."""
    return list(_find_wrong(stage, stage.places.seance))


def _find_wrong(stage: Play, path: Path) -> Iterator[str]:
    with ExcerptIndex(path) as index, stage.ledger() as ledger, ledger.read() as connection:
        if problem := index.find_problem():
            yield f"the index is damaged: {problem}"
        for task in _TASKS:
            for attempt in queries.list_attempts_of_task(connection, task):
                known = find_known(connection, task, attempt.number)
                documents = index.list_documents([(task, attempt.number)])
                found = index.search("heron", documents, 10)
                said: list[Cited] = [each for each in found if each.document.endswith("/output")]
                verdicts = index.list_last(Role.REJECTED, documents, 10, each=10)
                if known is None or len(said) != 1 or len(verdicts) != 1:
                    yield f"collected of {task} {attempt.number}: {len(said)} outputs, {len(verdicts)} verdicts"


scenario(
    "seance",
    "the historian collects what failed attempts left",
    given=failed,
    act=collect,
    recover=collect,
    check=check,
)
