"""The installed command, as a person types it."""

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.cli.app import init
from tests.git import git
from tests.needs import leave_out
from tests.typing_in import type_in

DEADLINE_S = 40.0
# Behind Landlock a task without a repository makes no files beside .hive (docs/explain/sandbox.md), and what is tried
# here is not about isolation.
WEAK_ISOLATION = '\n[sandbox]\nlevel = "limits"\n'


class Shell:
    """A terminal in a hive's directory."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.started: list[subprocess.Popen[str]] = []

    def hive(self, *arguments: str, code: int = 0, cwd: Path | None = None) -> str:
        """Type a command, expect its exit code, give all it said; only keepers need a process of their own."""
        found, said = type_in(arguments, cwd or self.root, timeout_s=DEADLINE_S)
        assert found == code, f"exit {found} instead of {code}\n{said}"
        return said

    def json(self, *arguments: str) -> Any:  # noqa: ANN401 - whatever the command prints
        return json.loads(self.hive(*arguments, "--json"))

    def start(self, *arguments: str) -> "subprocess.Popen[str]":
        argv = (sys.executable, "-m", "hivekeeper", *arguments)
        process = subprocess.Popen(
            argv, cwd=self.root, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, start_new_session=True
        )
        self.started.append(process)
        return process

    def set(self, toml: str) -> None:
        """Write hive.toml, with isolation in which a task without a repository may make files beside .hive."""
        (self.root / "hive.toml").write_text(toml if shutil.which("bwrap") else f"{toml}{WEAK_ISOLATION}")

    def plan(self, text: str, name: str = "plan.yaml") -> str:
        (self.root / name).write_text(text)
        return name

    def wait(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it did not come to that in time"
            time.sleep(0.02)  # real time: another process must get there

    def keeper_is_active(self) -> bool:
        return bool(self.json("status")["keeper"]["state"] == "ACTIVE")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out the benchmarks that are tried for other commits."""
    here = Path(__file__).parent
    benchmarks = {
        item: item.path.name for item in items if item.path.parent == here and item.path.name.startswith("test_bench_")
    }
    leave_out(config, items, "benchmarks", benchmarks)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    root = tmp_path / "hive"
    root.mkdir()
    shell = Shell(root)
    init(root)  # as `hive init` does, without an interpreter of its own for every test
    if shutil.which("bwrap") is None:
        settings = root / "hive.toml"
        settings.write_text(settings.read_text().replace('level = "best"', 'level = "limits"'))
    yield shell
    (root / "go").touch()  # whatever still waits for it may end
    for process in shell.started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A person's repository with one commit."""
    path = tmp_path / "app"
    path.mkdir()
    git(path, "init", "-q", "-b", "main")
    git(path, "commit", "-q", "--allow-empty", "-m", "first")
    return path
