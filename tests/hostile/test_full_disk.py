"""A disk that fills while a worker works: the keeper waits and says why; with space again nothing was lost."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Shell
from tests.hostile.conftest import Person
from tests.needs import small_disk

PLAN = """
convoy: work
repos: {{app: {{path: {app}}}}}
tasks:
  - {{id: A, repo: app, attempts: 2, command: "echo a > a; until [ -e {go} ]; do sleep 0.05; done; echo b > b"}}
  - {{id: B, repo: app, attempts: 1, after: [A], command: "echo c > c"}}
"""


class SmallDisk:
    """A hive on a disk of its own, a keeper beside it, and a worker that waits for a sign."""

    def __init__(self, root: Path) -> None:
        self.disk = root / "disk"
        self.go = root / "go"
        self.person = Person(root / "app")
        self.filler = self.disk / "filler"
        self.shell = Shell(self.disk)

    def start(self) -> None:
        self.shell.hive("init")
        settings = f"[sandbox]\nwrite = ['{self.go.parent}']\n[keeper]\nheartbeat = '1s'\npreempt = '1s'\n"
        (self.disk / "hive.toml").write_text(settings)
        self.shell.hive("convoy", "submit", self.shell.plan(PLAN.format(app=self.person.path, go=self.go)))
        self.keep()
        self.shell.wait(lambda: any(self.disk.glob(".hive/sandboxes/work/A.1/work/a")))

    def keep(self) -> None:
        with (self.go.parent / "said").open("ab") as said:
            argv = (sys.executable, "-m", "hivekeeper", "up")
            self.keeper = subprocess.Popen(argv, cwd=self.disk, stdout=said, stderr=said)

    def fill(self) -> None:
        for size in (1 << 20, 4096, 1):
            with suppress(OSError), self.filler.open("ab", buffering=0) as file:
                while file.write(b"x" * size) == size:
                    pass

    def said(self) -> str:
        return (self.go.parent / "said").read_text()

    def states(self) -> list[str]:
        return [task["state"] for task in self.shell.json("convoy", "show", "work")["task_list"]]

    def wait_told(self) -> None:
        self.shell.wait(lambda: "is full." in self.said() or self.keeper.poll() is not None)

    def close(self) -> None:
        self.go.touch()
        self.keeper.terminate()
        self.keeper.wait()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[SmallDisk]:
    with small_disk(tmp_path / "disk", "size=48m"):
        disk = SmallDisk(tmp_path)
        disk.start()
        yield disk
        disk.close()


def test_what_a_worker_made_on_a_full_disk_lands_once_there_is_space(disk: SmallDisk) -> None:
    disk.fill()
    disk.go.touch()
    disk.wait_told()
    assert disk.keeper.poll() is None, disk.said()
    disk.filler.unlink()
    disk.shell.wait(lambda: disk.states() == ["COMPLETE", "COMPLETE"])
    disk.shell.wait(lambda: "A\tc" in disk.person.changed())
    assert set(disk.person.changed()) >= {"A\ta", "A\tc"}
    assert list(disk.disk.glob(".hive/runs/**/exit.*")) == [], "no draft stays of an ending that found no space"
    # A disk this small is worth a warning, and nothing else is wrong.
    findings = json.loads(disk.shell.hive("doctor", "--json", code=1))["findings"]
    assert [finding["check"] for finding in findings if finding["level"] != "OK"] == ["disk"]


def test_while_the_disk_is_full_keeper_and_status_say_so_in_a_sentence(disk: SmallDisk) -> None:
    disk.fill()
    disk.go.touch()
    disk.wait_told()
    assert "ledger.db is full.\nFree some space" in disk.said()
    assert "Traceback" not in disk.said()
    assert disk.said().count("\n") < 20, "it waits longer each time, and does not repeat itself at every pass"
    assert "is full" in disk.shell.hive("status")


def test_a_keeper_that_is_started_on_a_full_disk_says_so_and_works_when_there_is_space(disk: SmallDisk) -> None:
    disk.keeper.kill()
    disk.keeper.wait()
    disk.fill()
    disk.go.touch()
    disk.keep()
    assert disk.keeper.wait(20) == 5
    assert "ledger.db is full.\nFree some space" in disk.said()
    assert "Traceback" not in disk.said()
    disk.filler.unlink()
    disk.keep()
    disk.shell.wait(lambda: disk.states() == ["COMPLETE", "COMPLETE"])
