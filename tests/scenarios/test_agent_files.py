"""The files of agents: written from the ledger, read back when a person edits them, and kept whatever happens."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.commands import agents
from hivekeeper.identity import history
from hivekeeper.loops.registrar import Registrar
from hivekeeper.store import agent_queries
from hivekeeper.store.ledger import read_head
from hivekeeper.views.agents import list_agents, list_lessons, show_agent
from tests.scenarios.conftest import Scene
from tests.scenarios.test_agents import hire, prompt  # noqa: F401 - a fixture
from tests.stage import ME, Repository

Keep = Callable[[], int]


@pytest.fixture
def keep(stage: Scene) -> Keep:
    """Bring files and ledger together, as a keeper does that has just started."""

    def keeping() -> int:
        keeper = stage.keeper or stage.take()
        loop = next(each for each in keeper.loops if isinstance(each, Registrar))
        loop._done.clear()  # noqa: SLF001 - a keeper that follows another knows nothing yet
        return sum(loop.run_once().values())

    return keeping


def place(stage: Scene, agent: str) -> Path:
    return stage.hive.places.agents / agent


def make(stage: Scene, name: str, role: str = "", *strengths: str) -> None:
    with stage.hive.ledger.write(ME) as tx:
        agents.create_agent(tx, name, role=role, strengths=strengths)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def count_events(stage: Scene) -> int:
    with stage.hive.ledger.read() as connection:
        return read_head(connection).seq


def list_problems(stage: Scene, name: str) -> list[str]:
    return list(show(stage, name)["problems"])


def show(stage: Scene, name: str) -> dict[str, Any]:
    with stage.hive.ledger.read() as connection:
        return show_agent(connection, agents.get_agent(connection, name))


def test_what_an_agent_did_is_in_its_files(
    stage: Scene,
    repository: Repository,
    hire: None,  # noqa: F811 - the fixture
    keep: Keep,
) -> None:
    stage.submit(prompt("A", agent="auth", title="Rotate tokens"), repos=(repository.spec(),))
    stage.submit(prompt("B", "exit 3", agent="auth", attempts=1), convoy="more")
    stage.finish()
    stage.finish("more")
    keep()
    identity = (place(stage, "auth") / "identity.yaml").read_text()
    assert "name: auth\n" in identity
    assert "sessions_completed: 2\n" in identity
    told = (place(stage, "auth") / "work-history.md").read_text()
    landed, failed = told.split("\n## ")[1:]
    day, session = landed.splitlines()[0].split(" Session ")
    assert (len(day), session) == (10, "1")
    assert "- Task: A: Rotate tokens" in landed
    assert "- Status: Complete, landed as " in landed
    assert "- Branch: refs/hive/attempts/work/A/1 in app" in landed
    assert "- Status: Failed: exit code 3" in failed
    assert keep() == 0, "a second look changes nothing"


def test_what_a_person_edits_is_read_back_and_their_comments_stay(stage: Scene, keep: Keep) -> None:
    make(stage, "ann", "builder", "make")
    keep()
    path = place(stage, "ann") / "identity.yaml"
    edit(path, "role: builder", "# who else\nrole: senior builder  # since May")
    edit(path, "- make", "- make\n- sql")
    (place(stage, "ann") / "expertise.yaml").write_text("patterns:\n- look first\nanti-patterns: []\ndecisions: []\n")
    keep()
    shown = show(stage, "ann")
    assert (shown["role"], shown["strengths"]) == ("senior builder", ["make", "sql"])
    assert shown["expertise"] == {"patterns": ["look first"], "anti-patterns": [], "decisions": []}
    assert "# who else\nrole: senior builder  # since May\n" in path.read_text()
    before = count_events(stage)
    assert keep() == 0
    assert count_events(stage) == before
    with stage.hive.ledger.write(ME) as tx:
        assert agents.teach(tx, "ann", "patterns", "look twice", "work/A.1") == ""
    keep()
    assert (place(stage, "ann") / "expertise.yaml").read_text().startswith("patterns:\n- look first\n- look twice\n")
    edit(place(stage, "ann") / "expertise.yaml", "- look first\n", "")
    keep()
    with stage.hive.ledger.read() as connection:
        assert list_lessons(connection, "ann")["patterns"] == ["look twice"]


@pytest.mark.parametrize(
    ("file", "text", "told"),
    [
        ("identity.yaml", "name: ann\nrole: [\n", "identity.yaml:3:1: not YAML"),
        ("identity.yaml", "name: bob\n", "identity.yaml:1:1: 'name' is 'bob', and this is the directory of ann"),
        ("identity.yaml", "name: ann\nstrength: [x]\n", "identity.yaml:2:1: unknown key 'strength'"),
        ("expertise.yaml", "patterns: 7\n", "expertise.yaml:1:1: 'patterns' in the expertise must be a list"),
        ("identity.yaml", "", "the file is empty"),
        ("identity.yaml", "x" * (2 << 20), "it is larger than 1 MiB"),
        ("expertise.yaml", "\xff".encode("latin-1"), "it is not UTF-8 text, from byte 0 on"),
    ],
    ids=["no YAML", "another name", "a wrong key", "a wrong value", "empty", "too large", "binary"],
)
def test_a_file_that_cannot_be_used_is_told_and_changes_nothing(
    stage: Scene, keep: Keep, file: str, text: str | bytes, told: str
) -> None:
    make(stage, "ann", "builder", "make")
    keep()
    path, before = place(stage, "ann") / file, show(stage, "ann")
    good = path.read_text()
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    keep()
    (problem,) = list_problems(stage, "ann")
    assert told in problem
    assert {**show(stage, "ann"), "problems": []} == before
    with stage.hive.ledger.write(ME) as tx:
        agents.describe_agent(tx, agents.get_agent(tx.connection, "ann"), "chief", ["make"], why="")
    keep()
    assert path.read_bytes() == (text.encode() if isinstance(text, str) else text), "it is a person's"
    path.write_text(good)
    keep()
    assert show(stage, "ann")["problems"] == []


@pytest.mark.parametrize("what", ["link", "directory", "pipe"])
def test_what_is_no_file_is_never_read(stage: Scene, keep: Keep, tmp_path: Path, what: str) -> None:
    make(stage, "ann", "builder")
    keep()
    path = place(stage, "ann") / "identity.yaml"
    path.unlink()
    (tmp_path / "elsewhere").write_text("name: ann\nrole: intruder\n")
    if what == "link":
        path.symlink_to(tmp_path / "elsewhere")
    elif what == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    keep()
    assert show(stage, "ann")["role"] == "builder"
    (problem,) = list_problems(stage, "ann")
    assert "identity.yaml: it is" in problem


def test_a_directory_made_by_hand_is_an_agent(stage: Scene, keep: Keep) -> None:
    for name in ("eve", "worker-7", "bad"):
        place(stage, name).mkdir(parents=True)
        (place(stage, name) / "identity.yaml").write_text(f"name: {name}\nrole: tester\nstrengths: [pytest]\n")
    (place(stage, "bad") / "identity.yaml").write_text("name: [")
    place(stage, "empty").mkdir()
    keep()
    with stage.hive.ledger.read() as connection:
        assert [(agent["agent"], agent["strengths"]) for agent in list_agents(connection)] == [("eve", ["pytest"])]
    assert keep() == 0
    assert (place(stage, "eve") / "expertise.yaml").exists()


def test_a_renamed_agent_takes_its_files_along(stage: Scene, keep: Keep) -> None:
    make(stage, "ann", "builder")
    keep()
    edit(
        place(stage, "ann") / "work-history.md",
        "what you write here stays.\n",
        "what you write here stays.\n\nA note.\n",
    )
    with stage.hive.ledger.write(ME) as tx:
        agents.rename_agent(tx, agents.get_agent(tx.connection, "ann"), "anna")
    keep()
    assert not place(stage, "ann").exists()
    assert "name: anna\n" in (place(stage, "anna") / "identity.yaml").read_text()
    assert "A note." in (place(stage, "anna") / "work-history.md").read_text()
    assert keep() == 0
    with stage.hive.ledger.read() as connection:
        assert [agent.name for agent in agent_queries.list_agents(connection)] == ["anna"]


def test_a_long_history_is_cut_in_two_and_nothing_of_it_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MAX_CHARACTERS", 2000)
    entries = {n: history.write_session(n, "2026-01-01", f"T{n}", "Complete", "", "x" * 40) for n in range(1, 60)}
    text, older = history.add_sessions("", "ann", entries), {}
    while (cut := history.cut_history(text, "ann")) is not None:
        first, text, last = cut
        older[history.name_older(last)] = first
    assert len(older) > 1
    assert len(text) <= 2000
    whole = [number for each in (*older.values(), text) for number in sorted(history.list_sessions(each))]
    assert whole == list(range(1, 60)), "each once, in order"
    assert all(f": {name}" in "".join((*older.values(), text)) for name in older), "each is named in the next one"
