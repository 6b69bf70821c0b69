"""Two players, so that both cores are used; without strace the tier says so, and in CI that is a failure."""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.crash.tracing import find_strace

ROOT = Path(__file__).parents[2]
# More than cores: half of the time everybody waits for a process to start or to end.
PLAYERS = 2 * (os.cpu_count() or 1)


class Player:
    """A process that plays points."""

    def __init__(self, *options: str, module: str = "tests.crash.player") -> None:
        # They are many and none is in a hurry: what else is tried at this moment comes first.
        argv = ("nice", "-n", "5", sys.executable, "-m", module, *options)
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(self, line: str) -> Any:  # noqa: ANN401 - whatever JSON it answers
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the player died over {line}"
        return json.loads(answer)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)


class Players:
    """Players that share the work."""

    def __init__(self) -> None:
        self.all = [Player()]  # the others come when there is work for them
        self._listed: dict[str, dict[str, Any]] = {}

    def list_points(self, scenario: str) -> dict[str, Any]:
        """Give a scenario's points, and what its tasks come to undisturbed; played once for everybody who asks."""
        if scenario not in self._listed:
            self._listed[scenario] = self.all[0].ask(f"list {scenario}")
        assert "points" in self._listed[scenario], self._listed[scenario]
        return self._listed[scenario]

    def list_recovery(self, scenario: str) -> list[str]:
        return list(self.all[0].ask(f"recover {scenario}"))

    def play(self, points: Sequence[str]) -> list[dict[str, Any]]:
        """Play points wherever somebody is free; the verdicts come in no order."""
        self.all += [Player() for _ in range(PLAYERS - len(self.all))]
        todo: queue.SimpleQueue[str] = queue.SimpleQueue()
        for point in points:
            todo.put(point)
        verdicts: list[dict[str, Any]] = []

        def work(player: Player) -> None:
            while True:
                try:
                    point = todo.get_nowait()
                except queue.Empty:
                    return
                try:
                    verdicts.append({"point": point, **player.ask(point)})
                except (AssertionError, OSError) as error:
                    verdicts.append({"point": point, "problem": str(error)})
                    return

        threads = [threading.Thread(target=work, args=(player,)) for player in self.all]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return verdicts

    def close(self) -> None:
        for player in self.all:
            player.close()


def need_strace() -> None:
    """Say that the tier cannot be played here; where it counts, as a failure."""
    if problem := find_strace():
        if os.environ.get("CI"):
            pytest.fail(f"{problem}; this tier may not be left out in CI")
        pytest.skip(problem)


@pytest.fixture(scope="session")
def players() -> Iterator[Players]:
    need_strace()
    made = Players()
    yield made
    made.close()
