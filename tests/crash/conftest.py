"""Players: processes that play scenarios. Each scenario has one of them, so that it is prepared once."""

import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.needs import need_strace

ROOT = Path(__file__).parents[2]
# More than cores: half of the time everybody waits for a process to start or to end.
PLAYERS = 2 * (os.cpu_count() or 1)


class Player:
    """A process that plays points; it counts its CPU seconds."""

    def __init__(self, *options: str, module: str = "tests.crash.player") -> None:
        # They are many and none is in a hurry: what else is tried at this moment comes first.
        argv = ("nice", "-n", "5", sys.executable, "-m", module, *options)
        self._process = subprocess.Popen(argv, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.cpu_s = 0.0

    def ask(self, line: str) -> Any:  # noqa: ANN401 - whatever JSON it answers
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{line}\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        assert answer, f"the player died over {line}"
        reply = json.loads(answer)
        self.cpu_s += reply.get("cpu_s", 0.0)
        return reply

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()
        self._process.wait(30)


class Players:
    """Players that share scenarios: who takes one keeps it."""

    def __init__(self, seconds: float, module: str = "tests.crash.player") -> None:
        self.seconds = seconds  # CPU seconds that all of them may use together
        self._module = module
        self._all: list[Player] = []

    @property
    def cpu_s(self) -> float:
        """What they have used so far."""
        return sum(player.cpu_s for player in self._all)

    @property
    def have_time(self) -> bool:
        """Tell whether any of the tier's time is left."""
        return self.cpu_s < self.seconds

    def share(self, names: Sequence[str], play: Callable[[Player, list[str]], None]) -> None:
        """Deal scenarios out, and let every player play its own."""
        dealt = [list(names[first::PLAYERS]) for first in range(min(PLAYERS, len(names)))]
        self._all = [Player(module=self._module) for _ in dealt]
        threads = [threading.Thread(target=play, args=each) for each in zip(self._all, dealt, strict=True)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for player in self._all:
            player.close()


@pytest.fixture(scope="session", autouse=True)
def _strace() -> None:
    need_strace()
