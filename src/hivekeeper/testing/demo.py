"""The whole story on a scratch repository: a plan, a keeper killed in the middle, another one, and a count.

Every task writes a line to a file outside the repository when it begins. At the end those lines, the ledger and the
commits on the integration branch are judged together: nothing lost, nothing done twice, nothing out of order.
"""

import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hivekeeper.errors import UnavailableError
from hivekeeper.testing.history import check_history, read_history
from hivekeeper.testing.scratch import count_tasks, git, start_hive

_DEADLINE_S = 55.0


def run_demo(*, tasks: int, workers: int, keep: Path | None) -> tuple[list[dict[str, Any]], list[str], float]:
    """Play the story; give a row a task, what is wrong, and the seconds. The directory is kept when one was named."""
    started = time.monotonic()
    directory = keep or Path(tempfile.mkdtemp(prefix="hive-demo-"))
    directory.mkdir(parents=True, exist_ok=True)
    try:
        repository = _make_repository(directory / "shop")
        hive = directory / "hive"
        marks = directory / "marks"
        hive.mkdir()
        (hive / "plan.yaml").write_text(_plan(repository, marks, tasks))
        _say("$ hive init && hive run plan.yaml")
        start_hive(hive, "init").wait()
        first = start_hive(hive, "run", "plan.yaml", "--workers", str(workers))
        _wait_until(first, lambda: _count_landed(repository) >= max(1, tasks // 4))
        first.send_signal(signal.SIGKILL)
        first.wait()
        _say(f"\n*** kill -9 {first.pid}: the keeper is dead, {_count_landed(repository)} tasks have landed ***")
        _say("$ hive run plan.yaml")
        second = start_hive(hive, "run", "plan.yaml", "--workers", str(workers))
        second.wait(_DEADLINE_S)
        _say("\n$ git log --oneline hive/main")
        _say(git("-C", str(repository), "log", "--oneline", "hive/main"))
        history = read_history(hive, marks=marks.read_text().splitlines(), acknowledged=["submitted shop"])
        wrong = [str(violation) for violation in check_history(history)]
        return count_tasks(history), wrong, time.monotonic() - started
    finally:
        if keep is None:
            shutil.rmtree(directory, ignore_errors=True)


def _plan(repository: Path, marks: Path, tasks: int) -> str:
    lines = [
        "convoy: shop",
        "repos:",
        f"  shop: {{path: {json.dumps(str(repository))}, verify: 'sh check.sh'}}",
        "tasks:",
    ]
    for number in range(1, tasks + 1):
        name = f"part-{number:02}"
        mark = f'echo "$HIVE_CONVOY/$HIVE_TASK $HIVE_ATTEMPT" >> {marks}'
        command = f"{mark} && sleep {0.5 + number % 3 * 0.5} && echo 'price={number}' > {name}.txt"
        lines += [f"  - id: {name}", "    repo: shop", f"    title: Add {name}", f"    command: {json.dumps(command)}"]
        if number > 3 and number % 4 == 0:
            lines.append(f"    after: [part-{number - 1:02}]")
    return "\n".join(lines) + "\n"


def _make_repository(path: Path) -> Path:
    path.mkdir()
    git("-C", str(path), "init", "--quiet", "--initial-branch=main")
    (path / "check.sh").write_text('for part in part-*.txt; do\n  grep -q "^price=" "$part" || exit 1\ndone\n')
    git("-C", str(path), "add", ".")
    git("-C", str(path), "commit", "--quiet", "-m", "A shop with nothing in it")
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
