"""A convoy's card, part way through its third batch, and the story of workers A to E that batches are for."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.cli.render import print_convoy
from hivekeeper.commands import attempts
from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByPerson, Ledger, create_ledger, open_ledger
from hivekeeper.testing.fakes import FakeClock, FakeRuns
from hivekeeper.views.convoys import get_convoy, show_convoy
from tests.store.ledger_kit import seize

GOLDEN = Path(__file__).parent / "golden" / "convoy_card.txt"
ME = ByPerson("ann")
NOON = 1_776_859_200.0  # 2026-04-22T12:00:00Z
REPOS = tuple(RepoSpec(name, f"/src/{name}") for name in ("api-service", "auth-lib", "tests"))
AUTH = tuple(
    TaskSpec(f"AUTH-{140 + number}", "true", repo=REPOS[number % 3].name, attempts=2 if number == 2 else 3)
    for number in range(13)
)
LAST = (
    TaskSpec("AUTH-153", "true", repo="tests", after=("AUTH-142", "AUTH-151")),
    TaskSpec("NOTES", "true", after=("AUTH-153",)),
)


class Book:
    """A ledger written through commands, at a time that stands still until it is moved."""

    def __init__(self, directory: Path) -> None:
        create_ledger(directory / "ledger.db")
        self.clock = FakeClock(start=NOON)
        self.ledger: Ledger = open_ledger(directory / "ledger.db", self.clock)
        self.keeper = seize(self.ledger)
        with self.ledger.write(ME) as tx:
            submit_plan(tx, PlanSpec("auth-module", AUTH + LAST, REPOS))

    def dispatch(self, *names: str) -> None:
        for name in names:
            with self.ledger.write(self.keeper) as tx:
                attempts.dispatch_task(tx, self._task(name))

    def complete(self, *names: str) -> None:
        for name in names:
            with self.ledger.write(self.keeper) as tx:
                attempts.complete_task(tx, self._task(name), self._attempt(name).number, at=tx.now)

    def fail(self, name: str, why: str) -> None:
        with self.ledger.write(self.keeper) as tx:
            attempts.fail_attempt(tx, self._task(name), self._attempt(name), why=why, at=tx.now)

    def card(self, *, keeper_is_alive: bool = True) -> dict[str, Any]:
        with self.ledger.read() as connection:
            convoy = get_convoy(connection, "auth-module")
            return show_convoy(connection, convoy, now=self.clock.now(), keeper_is_alive=keeper_is_alive)

    def _task(self, name: str) -> TaskRow:
        with self.ledger.read() as connection:
            found = queries.find_task(connection, f"auth-module/{name}")
        assert found is not None
        return found

    def _attempt(self, name: str) -> AttemptRow:
        with self.ledger.read() as connection:
            return queries.list_attempts_of_task(connection, f"auth-module/{name}")[-1]


@pytest.fixture
def book(tmp_path: Path) -> Iterator[Book]:
    book = Book(tmp_path)
    yield book
    book.ledger.close()


def _tell_three_batches(book: Book) -> None:
    ids = [spec.id for spec in AUTH]
    book.dispatch(*ids[:10])
    book.clock.advance(600)
    book.complete(*ids[:2], *ids[3:7], *ids[8:10])
    book.fail("AUTH-142", "exit code 1; last output: [red]no[/red]\x1b]0;owned\x07 " + "very " * 30)
    book.fail("AUTH-147", "it ran longer than its time limit and was stopped")
    book.dispatch("AUTH-142", "AUTH-147", *ids[10:])
    book.clock.advance(300)
    book.complete("AUTH-147", *ids[10:12])
    book.fail("AUTH-142", "the command was killed by SIGSEGV")
    book.fail("AUTH-152", "its gate failed")
    book.dispatch("AUTH-152")
    book.clock.advance(65)


def test_the_card_matches_the_golden_file(
    book: Book, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    _tell_three_batches(book)
    print_convoy(book.card())
    text = "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())
    if os.environ.get("WRITE_GOLDEN"):
        GOLDEN.write_text(text)
    assert text == GOLDEN.read_text()


def test_the_card_has_every_fact_for_programs(book: Book) -> None:
    _tell_three_batches(book)
    card = book.card()
    assert (card["complete"], card["tasks"], card["failed_attempts"]) == (11, 15, 4)
    assert card["elapsed_s"] == 965
    assert [(repo["repo"], repo["complete"], repo["tasks"]) for repo in card["repos"]] == [
        ("api-service", 4, 5),
        ("auth-lib", 4, 4),
        ("tests", 3, 5),
        (None, 0, 1),
    ]
    assert [[failure["task"] for failure in swarm["failed"]] for swarm in card["swarms"]] == [
        ["AUTH-142", "AUTH-147"],
        ["AUTH-142", "AUTH-152"],
        [],
    ]
    assert "very very very very" in card["swarms"][0]["failed"][0]["reason"]
    tasks = {task["task"]: task for task in card["task_list"]}
    assert tasks["AUTH-142"]["failed_attempts"] == 2
    assert tasks["AUTH-153"]["waits_for"] == [{"task": "AUTH-142", "state": "FAILED"}]


def test_the_end_is_expected_from_what_is_done_and_only_while_somebody_keeps_the_hive(book: Book) -> None:
    book.dispatch(*(spec.id for spec in AUTH[:4]))
    book.clock.advance(600)
    book.complete("AUTH-140", "AUTH-141")
    assert book.card()["expected_end"] is None, "two are too few to tell"
    book.complete("AUTH-142")
    book.dispatch("AUTH-144")
    card = book.card()
    # One has had its ten minutes, one has them before it, and ten tasks wait for these two.
    assert card["left_s"] == (10 * 600 + 600) / 2
    assert card["expected_end"] == "2026-04-22T13:05:00.000000Z"
    assert book.card(keeper_is_alive=False)["expected_end"] is None


class Play:
    """A hive of three workers whose time and runs are ours."""

    def __init__(self, root: Path) -> None:
        (root / ".hive").mkdir()
        create_ledger(root / ".hive" / "ledger.db")
        self.clock = FakeClock(start=NOON)
        self.runs = FakeRuns(self.clock, lambda _order: None)
        self.hive = open_hive(root, self.clock)
        self.keeper = Keeper(self.hive, runs=self.runs, workers=3)

    def step(self, seconds: float = 1.0) -> None:
        self.clock.advance(seconds)
        while self.keeper.step():
            pass

    def swarms(self) -> list[tuple[int, int, int, int]]:
        return [(s["first_worker"], s["last_worker"], s["complete"], s["attempts"]) for s in self.card()["swarms"]]

    def states(self) -> dict[str, str]:
        return {task["task"]: task["state"] for task in self.card()["task_list"]}

    def card(self) -> dict[str, Any]:
        with self.hive.ledger.read() as connection:
            return show_convoy(connection, get_convoy(connection, "story"), now=self.clock.now())

    def close(self) -> None:
        self.keeper.close()
        self.hive.close()


@pytest.fixture
def play(tmp_path: Path) -> Iterator[Play]:
    play = Play(tmp_path)
    yield play
    play.close()


@pytest.mark.parametrize("status", [-11, 1])
def test_a_crash_in_the_first_swarm_loses_no_progress_and_goes_into_the_second(play: Play, status: int) -> None:
    """Workers A, B, C: A and C complete tasks 1 and 3, B crashes on 2. Then D repeats 2 and E does 4."""
    one, two, three = (TaskSpec(f"task-{number}", "true", idempotent=True) for number in (1, 2, 3))
    with play.hive.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("story", (one, two, three, TaskSpec("task-4", "true", after=("task-3",)))))
    play.step()
    assert play.swarms() == [(1, 3, 0, 3)]
    play.runs.end("story/task-1.1.agent", 0)
    play.runs.end("story/task-2.1.agent", status)
    play.runs.end("story/task-3.1.agent", 0)
    play.step()
    assert play.states() == {
        "task-1": "COMPLETE",
        "task-2": "IN_PROGRESS",
        "task-3": "COMPLETE",
        "task-4": "IN_PROGRESS",
    }
    assert play.swarms() == [(1, 3, 2, 3), (4, 5, 0, 2)]
    assert [failure["task"] for failure in play.card()["swarms"][0]["failed"]] == ["task-2"]
    play.runs.end("story/task-2.2.agent", 0)
    play.runs.end("story/task-4.1.agent", 0)
    play.step()
    card = play.card()
    assert (card["state"], card["complete"], card["failed_attempts"]) == ("COMPLETE", 4, 1)
    assert play.swarms() == [(1, 3, 2, 3), (4, 5, 2, 2)]
    assert [order.run for order in play.runs.started] == [
        "story/task-1.1.agent",
        "story/task-2.1.agent",
        "story/task-3.1.agent",
        "story/task-2.2.agent",
        "story/task-4.1.agent",
    ]
