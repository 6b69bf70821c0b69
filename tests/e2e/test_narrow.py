"""Tables on terminals of 60 and 80 columns, with names as long as they may be: a line a row, and every name whole."""

import re
from collections.abc import Iterator

import pytest
from rich.console import Console

from hivekeeper.cli import render
from hivekeeper.domain import events as e
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.views import agents
from hivekeeper.views import runners as views
from tests.e2e.conftest import Shell
from tests.store.ledger_world import World
from tests.store.test_queue_commands import bring_entry

SHORT, LONG = "auth-module/AUTH-140-refresh", f"auth-module/AUTH-141-{'x' * 55}"
SAID = "The session store is next, and then the tests; they still expect that there is one token for everybody here"


@pytest.fixture(params=[60, 80])
def columns(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Have commands believe that they print on a terminal so wide."""
    width = int(request.param)
    monkeypatch.setattr(render, "console", lambda: Console(width=width, color_system=None, highlight=False))
    return width


@pytest.fixture
def world(shell: Shell) -> Iterator[World]:
    """A ledger with two tasks in the merge queue, one of them with a long name, and mail of both."""
    world = World(shell.root / ".hive")
    tasks = [TaskSpec(key.partition("/")[2], "true", repo="r", title=SAID) for key in (SHORT, LONG)]
    world.submit("auth-module", *tasks, repos=(RepoSpec("r", "/repos/r"),))
    world.fetch()
    for number, key in enumerate((SHORT, LONG), start=1):
        bring_entry(world, key, "VERIFYING")
        sender, origin = f"auth-module.worker-{number}", f"{key}.1"
        payload = {"text": SAID}
        with world.keep() as tx:
            said = (f"{key}/mail-1", "inform", sender, "person", key, 1, payload, key)
            tx.record(e.MailAccepted(*said, origin=origin))
            nonsense = (f"{key}/mail-2", *said[1:])
            tx.record(e.MailSettled(*nonsense, origin=origin, file="m.json", outcome="QUARANTINED"), why=SAID)
    yield world
    world.close()


TABLES = {
    "status": (rf"{SHORT} +verifying on .*", rf"{LONG} +verifying on .*"),
    "task ls": (rf"{SHORT} +IN_PROGRESS +The session.*…", rf"{LONG}  IN_PROGRESS +The session.*…"),
    "queue ls": (rf"   1  {SHORT} +verifying on .*", rf"   2  {LONG} +verifying on .*"),
    "mail ls": (rf".*{SHORT}/mail-1 +The .*…", rf".*{LONG}/mail-1 +The .*…"),
    "mail inbox": (rf".*{SHORT}/mail-1 +The .*…", rf".*{LONG}/mail-1 +The .*…"),
    "mail quarantine ls": (rf".*{SHORT}/mail-2 +The .*…", rf".*{LONG}/mail-2 +The .*…"),
    "diff 0 LAST": (rf"{SHORT} +– → IN_PROGRESS.*", rf"{LONG} +– → IN_PROGRESS.*"),
    "ledger": (r"AUTH-140-refresh +IN_PROGRESS.*", r"AUTH-141-x{55} +IN_PROGRESS.*"),
}


@pytest.mark.parametrize("arguments", TABLES)
def test_a_table_has_a_line_for_each_row_and_names_and_states_are_whole(
    shell: Shell, world: World, columns: int, arguments: str
) -> None:
    lines = shell.hive(*arguments.replace("LAST", str(world.seq())).split()).splitlines()
    for row in TABLES[arguments]:
        assert len([line for line in lines if re.fullmatch(row, line)]) == 1, lines
    assert [line for line in lines if len(line) > columns and LONG.partition("/")[2] not in line] == []
    assert [line for line in lines if len(line) > 2 * columns] == []


@pytest.mark.parametrize("arguments", ["task ls", "mail ls", "mail quarantine ls"])
def test_piped_a_row_is_whole(shell: Shell, world: World, arguments: str) -> None:
    assert world.task(SHORT).title == SAID
    assert len(re.findall(f" {re.escape(SAID)}$", shell.hive(*arguments.split()), re.MULTILINE)) >= 2


def test_costs_are_a_line_each(shell: Shell, columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    used = {"tokens_in": 1_234_567, "tokens_out": 89_012, "money": 3.25}
    ways = {
        f"by_{way}": [{way: name, **used} for name in (SHORT, LONG)] for way in ("convoy", "runner", "agent", "task")
    }
    monkeypatch.setattr(views, "show_costs", lambda *_, **__: {"sessions": 1, "unpriced": [], **used, **ways})
    lines = shell.hive("costs").splitlines()
    assert lines[0] == "1 session: $3.2500, 1,234,567 tokens in, 89,012 out"
    assert [line for line in lines if re.fullmatch(rf"{SHORT} +\$3\.2500.*", line) and len(line) <= columns] == [
        line for line in lines if line.startswith(SHORT)
    ]
    assert len([line for line in lines if line.startswith(f"{LONG}  $3.2500")]) == 4


def test_a_command_to_type_is_not_broken_by_the_width(shell: Shell, world: World, columns: int) -> None:
    assert world.task(SHORT).title == SAID
    lines = shell.hive("status").splitlines()
    assert "  There is mail for you from auth-module.worker-1," in " ".join(lines)
    assert "    → hive mail inbox" in lines
    assert any(len(line) <= columns and line.endswith("keeper is not running.") for line in lines)


def test_what_the_doctor_finds_is_broken_between_words_only(shell: Shell, columns: int) -> None:
    whole = [line for line in shell.hive("doctor").splitlines() if len(line) > columns]
    assert all(len(max(line.split(), key=len)) > columns - 2 * 20 for line in whole), whole
    assert re.search(r"^OK    repositories  0 on this machine", shell.hive("doctor"), re.MULTILINE)


def test_an_agents_strengths_are_cut_and_its_name_is_whole(
    shell: Shell, columns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    numbers = dict.fromkeys(("sessions", "landed", "rejected", "stalled", "failed"), 7)
    more = {"state": "ACTIVE", "share": 0.5, "strengths": ["python", "sql", "typescript", "docs"], "problems": []}
    rows = [{"agent": name, **numbers, **more} for name in ("ann", "n" * 40)]
    monkeypatch.setattr(agents, "list_agents", lambda *_, **__: rows)
    _, one, other, *_ = shell.hive("agent", "ls").splitlines()
    assert re.fullmatch(r"ann +ACTIVE .*python, .*", one)
    assert re.fullmatch(r"n{40}  ACTIVE .*python, .*", other)
    assert max(len(one), len(other)) <= columns
