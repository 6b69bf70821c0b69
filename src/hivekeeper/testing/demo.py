"""The whole story on a scratch repository: agents that fail, a keeper killed in the middle, another one, and a count.

Every agent writes a line to a file outside the repository when it begins. At the end those lines, the ledger and the
commits on the integration branch are judged together: nothing lost, nothing done twice, nothing out of order.
"""

import json
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from hivekeeper.config.values import FILE_NAME
from hivekeeper.errors import UnavailableError
from hivekeeper.testing.clashes import (
    INDEX,
    check_every_commit,
    describe_resolver,
    list_clashes,
    make_hotfix,
    prepare_clashes,
)
from hivekeeper.testing.history import check_history, read_history
from hivekeeper.testing.scratch import (
    count_tasks,
    describe_isolation,
    find_isolation,
    git,
    make_directory,
    read_lines,
    start_hive,
    write_settings,
)
from hivekeeper.testing.scripted import Fault

_DEADLINE_S = 55.0
_EVERY_FIFTH = (None, Fault.CRASH, Fault.HANG, Fault.LIE, None)
_CHAOS = tuple(Fault)
_SILENT_S = 2  # what hangs ends then; nobody else is silent that long
# More than the first, because a busy machine may keep an agent silent for too long.
_ATTEMPTS = 5


def run_demo(
    *, tasks: int, workers: int, keep: Path | None, chaos: bool = False
) -> tuple[list[dict[str, Any]], list[str], float]:
    """Play the story; give a row a task, what is wrong, and the seconds. The directory is kept when one was named.

    With `chaos` every agent begins badly, each in another way, and three keepers are killed.
    """
    started = time.monotonic()
    directory = make_directory(keep, "demo")
    hive, signs = directory / "hive", directory / "signs"
    try:
        for place in (hive, signs):
            place.mkdir()
        marks = signs / "marks"
        marks.touch()
        repository = _make_repository(directory / "shop")
        write_settings(hive, signs)
        with (hive / FILE_NAME).open("a") as settings:
            settings.write(describe_resolver())
        faults = _CHAOS if chaos else _EVERY_FIFTH
        (hive / "plan.yaml").write_text(_plan(repository, marks, [faults[n % len(faults)] for n in range(tasks)]))
        _say("$ hive init && hive run plan.yaml")
        start_hive(hive, "init").wait()
        _say(describe_isolation(find_isolation(hive)))
        kills = 3 if chaos else 1
        for number in range(1, kills + 1):
            _keep_and_kill(hive, repository, workers, until=max(1, tasks * number // (kills + 2)))
        _say("$ hive queue submit hotfix --priority")
        start_hive(hive, "queue", "submit", "hotfix", "--priority").wait()
        start_hive(hive, "run", "plan.yaml", "--workers", str(workers)).wait(_DEADLINE_S)
        _say("\n$ git log --oneline hive/main")
        _say(git("-C", str(repository), "log", "--oneline", "hive/main"))
        _say("\n$ hive queue ls")
        start_hive(hive, "queue", "ls").wait()
        history = read_history(hive, marks=read_lines(marks), acknowledged=["submitted shop"])
        rows = count_tasks(history)
        wrong = [*map(str, check_history(history)), *_look_around(rows, signs)]
        wrong += check_every_commit(repository, "hive/main", directory / "alone")
        return rows, wrong, time.monotonic() - started
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)


def _keep_and_kill(hive: Path, repository: Path, workers: int, *, until: int) -> None:
    """Have a keeper keep until so many tasks have landed, and kill it; the next one is asked to go on."""
    keeper = start_hive(hive, "run", "plan.yaml", "--workers", str(workers))
    _wait_until(keeper, lambda: _count_landed(repository) >= until)
    keeper.send_signal(signal.SIGKILL)
    keeper.wait()
    landed = _count_landed(repository)
    if landed == 1:
        _say(f"\n*** kill -9 {keeper.pid}: the keeper is dead, 1 task has landed ***")
    else:
        _say(f"\n*** kill -9 {keeper.pid}: the keeper is dead, {landed} tasks have landed ***")
    _say("$ hive run plan.yaml")


def _look_around(rows: list[dict[str, Any]], signs: Path) -> Iterator[str]:
    """Find what the judge of histories does not look at."""
    agents = [row for row in rows if not row["task"].startswith("hotfix-")]
    yield from (f"{row['task']} has no mark of an agent" for row in agents if row["began"] < 1)
    yield from (f"{row['task']} did not land" for row in rows if row["landed"] != 1)
    yield from (f"a trap has sprung: {line}" for line in read_lines(signs / "canary"))


def _plan(repository: Path, marks: Path, faults: list[Fault | None]) -> str:
    limits = f"silence: {_SILENT_S}s, processes: 32, disk: 4MiB, output_limit: 1MiB"
    lines = [
        "convoy: shop",
        "repos:",
        f"  shop: {{path: {json.dumps(str(repository))}, verify: 'sh check.sh',",
        f"         regenerate: {{index.txt: {json.dumps(INDEX)}}}}}",
        f"defaults: {{attempts: {_ATTEMPTS}, {limits}}}",
        "tasks:",
    ]
    for number, fault in enumerate(faults, start=1):
        name = f"part-{number:02}"
        argv = (
            sys.executable,
            "-P",
            "-m",
            "hivekeeper.testing.scripted",
            "--marks",
            str(marks),
            "--file",
            f"{name}.txt",
        )
        badly = f'[ "$HIVE_ATTEMPT" -gt 1 ] || set -- --faults {fault}=1; ' if fault else ""
        command = f'{badly}sleep {0.3 + number % 3 * 0.3}; exec {shlex.join(argv)} "$@"'
        lines += [f"  - id: {name}", "    repo: shop", f"    title: Add {name}", f"    command: {json.dumps(command)}"]
        if number > 3 and number % 4 == 0:
            lines.append(f"    after: [part-{number - 1:02}]")
    lines += list_clashes(marks, marks.parent)
    return "\n".join(lines) + "\n"


def _make_repository(path: Path) -> Path:
    path.mkdir()
    git("-C", str(path), "init", "--quiet", "--initial-branch=main")
    check = '[ ! -e "$part" ] || grep -q "makes it whole" "$part" || exit 1'
    (path / "check.sh").write_text(f"for part in part-*.txt; do\n  {check}\ndone\n")
    prepare_clashes(path)
    git("-C", str(path), "add", ".")
    git("-C", str(path), "commit", "--quiet", "-m", "A shop with nothing in it")
    make_hotfix(path)
    return path


def _count_landed(repository: Path) -> int:
    found = subprocess.run(
        ("git", "-C", str(repository), "rev-list", "--count", "main..hive/main"),
        capture_output=True,
        check=False,
        text=True,
    )
    return int(found.stdout or 0)


def _wait_until(process: "subprocess.Popen[bytes]", condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _DEADLINE_S
    while not condition():
        if process.poll() is not None or time.monotonic() > deadline:
            raise UnavailableError("The demo's keeper ended or hung before the middle of the story.")
        time.sleep(0.05)


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
