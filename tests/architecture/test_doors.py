"""Each thing of the world has one door: appending, the ledger's file, the clock, processes, and swallowing errors."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.architecture.sources import Source, dotted, read_package

CLOCKS = {
    "time": {"time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "localtime", "gmtime"},
    "datetime": {"now", "utcnow", "today"},
    "date": {"today"},
}
OPENERS = {"open", "read_text", "read_bytes", "write_text", "write_bytes", "touch", "copy", "copy2", "copyfile"}
USE_A_LEDGER = """
import sys
from pathlib import Path
from hivekeeper.commands.leases import take_lease
from hivekeeper.store import queries
from hivekeeper.store.ledger import BySuccessor, create_ledger, open_ledger

path = Path(sys.argv[1])
sys.addaudithook(lambda event, arguments: event == "open" and print(arguments[0]))
create_ledger(path)
ledger = open_ledger(path)
with ledger.write(BySuccessor("a test")) as tx:
    take_lease(tx, holder="a test", pid=1, start_ticks=1, boot_id="a boot", why="")
with ledger.read() as connection:
    assert queries.find_lease(connection) is not None
ledger.close()
"""
OUTSIDE = {"testing"}  # it drives the package like tests do, and measures real time
STARTERS = ("fork", "forkpty", "posix_spawn", "posix_spawnp", "system", "popen", "exec", "spawn")


def test_only_commands_append_to_the_ledger() -> None:
    assert {source.layer for source, name, _ in _calls() if name.endswith(".record")} == {"commands"}


def test_only_the_store_runs_sql() -> None:
    found = [
        source.at(call)
        for source, name, call in _calls()
        if name.endswith(("connection.run", "connection.rows")) and source.layer != "store"
    ]
    assert found == []


def test_no_code_opens_the_ledgers_file_itself() -> None:
    """Closing any descriptor of it would drop SQLite's locks."""
    found = [
        source.at(call)
        for source, name, call in _calls()
        if name.rpartition(".")[2] in OPENERS
        for part in ast.walk(call)
        if (
            isinstance(part, ast.Attribute)
            and part.attr == "ledger"
            and isinstance(part.value, ast.Name | ast.Attribute)
        )
        or (isinstance(part, ast.Constant) and isinstance(part.value, str) and "ledger.db" in part.value)
    ]
    assert found == []


def test_using_a_ledger_opens_its_file_only_inside_sqlite(tmp_path: Path) -> None:
    path = tmp_path / "ledger.db"
    # In a process of its own: an audit hook hears every open() and os.open(), and cannot be taken away again.
    done = subprocess.run([sys.executable, "-c", USE_A_LEDGER, str(path)], capture_output=True, text=True, check=True)
    opened = done.stdout.splitlines()
    assert str(path.with_suffix(".lock")) in opened, "the hook hears what it should"
    assert str(path) not in opened


def test_only_the_keeper_swallows_errors_it_does_not_know() -> None:
    """A broad handler that cleans up and raises again swallows nothing."""
    broad = {"Exception", "BaseException"}
    handlers = [
        source.at(handler)
        for source in read_package()
        for handler in source.find(ast.ExceptHandler)
        if (handler.type is None or broad & set(_names(handler.type)))
        and not (isinstance(handler.body[-1], ast.Raise) and handler.body[-1].exc is None)
    ]
    suppressions = [
        source.at(call)
        for source, name, call in _calls()
        if name.endswith("suppress") and any(broad & set(_names(argument)) for argument in call.args)
    ]
    assert [place.partition(":")[0] for place in handlers + suppressions] == ["keeper/keeper.py"]


def test_only_the_clock_and_the_wrapper_read_a_clock() -> None:
    found = [
        source.at(node)
        for source in read_package()
        if source.name not in ("clock.py", "runs/wrapper.py", "runs/nursery.py") and source.layer not in OUTSIDE
        for node in source.find(ast.expr)
        if _reads_clock(dotted(node))
    ]
    imported = [
        source.at(node) for source in read_package() for node in source.find(ast.ImportFrom) if node.module == "time"
    ]
    assert found + imported == []


def test_nothing_waits_inside_a_pass() -> None:
    layers = ("domain", "store", "git", "commands", "views", "loops")
    waits = ("sleep", "wait", "join")
    found = [
        source.at(call)
        for source, name, call in _calls()
        # "".join has no dotted name before the dot; a thread's or a queue's has.
        if source.layer in layers
        and name.rpartition(".")[2] in waits
        and name.rpartition(".")[0] not in ("", "os.path")
    ]
    assert found == []


def test_only_runs_and_git_start_processes() -> None:
    """The import contract guards `subprocess`; the other ways to a process lead through `os`."""
    found = [
        source.at(call)
        for source, name, call in _calls()
        if name.startswith("os.")
        and name.removeprefix("os.").startswith(STARTERS)
        and source.layer not in ("runs", "git", "sandbox")
    ]
    assert found == []


def _calls() -> Iterator[tuple[Source, str, ast.Call]]:
    """Every call inside the package; the demo drives it from outside, like tests."""
    for source in read_package():
        if source.layer not in OUTSIDE:
            for call in source.find(ast.Call):
                yield source, dotted(call.func), call


def _names(node: ast.expr) -> list[str]:
    return [part.id for part in ast.walk(node) if isinstance(part, ast.Name)]


def _reads_clock(name: str) -> bool:
    owner, _, function = name.rpartition(".")
    return function in CLOCKS.get(owner.rpartition(".")[2], ())
