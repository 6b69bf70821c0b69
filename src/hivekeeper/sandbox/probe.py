"""Tries the isolation out: starts an intruder inside, and looks from outside at what it got hold of."""

import json
import os
import select
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from hivekeeper.sandbox import intruder

_PATIENCE_MS = 10_000
_DEATH_MS = 3_000
_FORBIDDEN = {
    "read": "read a hidden file",
    "listed": "list a hidden directory",
    "opened": "open a file of others for writing",
    "cut": "empty a file of others",
}


@dataclass(frozen=True, slots=True)
class World:
    """A small hive in a scratch directory: a home, a hidden place, and the one sandbox that is the intruder's."""

    root: Path

    @property
    def home(self) -> Path:
        """The person's home."""
        return self.root / "home"

    @property
    def hive(self) -> Path:
        """What mounts hide."""
        return self.root / "hive"

    @property
    def sandbox(self) -> Path:
        """The intruder's own, inside of what is hidden."""
        return self.hive / "sandboxes" / "own"

    @property
    def secrets(self) -> tuple[Path, ...]:
        """One in the home, one in the hive, one in another sandbox, one in the scratch directory of everybody."""
        return tuple(
            directory / "secret" for directory in (self.home, self.hive, self.hive / "sandboxes" / "other", self.root)
        )


@cache
def knows_size(bubblewrap: str) -> bool:
    """Tell whether this bubblewrap can limit what is written to memory; older ones cannot."""
    said = subprocess.run((bubblewrap, "--help"), capture_output=True, check=False, text=True)  # noqa: S603 - ours
    return "--size" in said.stdout + said.stderr


Wrap = Callable[[list[str], World, dict[str, str]], tuple[str, ...]]


def find_hole(wrap: Wrap, *, is_alone: bool, keeps_signals_in: bool) -> str:
    """Tell what is wrong with the isolation; nothing when it holds.

    `is_alone`: nobody else is to be seen inside, and nothing is left when the outermost process is killed.
    """
    # There, because that is a place every isolation level hides without being asked.
    with tempfile.TemporaryDirectory(prefix="hive-sandbox-", dir="/tmp") as scratch:
        world = World(Path(scratch).resolve())
        for secret in world.secrets:
            secret.parent.mkdir(parents=True, exist_ok=True)
            secret.write_text("a secret")
        world.sandbox.mkdir()
        victim = subprocess.Popen(  # noqa: S603 - waits to be found and killed
            ["sh", "-c", "read line", intruder.VICTIM.decode()],  # noqa: S607 - any shell
            stdin=subprocess.PIPE,
            env={"PATH": os.environ.get("PATH", os.defpath), "SECRET": intruder.VICTIM.decode()},
        )
        with victim:
            told, has_orphan = _intrude(wrap, world, victim.pid, is_alone=is_alone)
            was_killed = victim.poll() is not None
            victim.kill()
        try:
            report = json.loads(told)
        except ValueError:
            return f"a program could not be started inside: {told.decode('utf-8', 'replace').strip()}"
        hole = _judge(report, world, is_alone=is_alone)
        if not hole and was_killed and keeps_signals_in:
            hole = "a program inside could kill a process outside"
        if not hole and has_orphan and is_alone:
            hole = "a program inside outlived the end of its run"
        return hole


def _intrude(wrap: Wrap, world: World, victim: int, *, is_alone: bool) -> tuple[bytes, bool]:
    """Start an intruder, hear what it tells, kill the outermost process; tell whether anything of it lived on."""
    plan = {
        "secrets": [str(secret) for secret in world.secrets],
        "doors": [str(secret.with_name("planted")) for secret in world.secrets],
        "sandbox": str(world.sandbox),
        "victim": victim,
    }
    script = [sys.executable, "-I", "-S", intruder.__file__, json.dumps(plan), "orphan" if is_alone else "alone"]
    environment = {"PATH": os.environ.get("PATH", os.defpath), "HOME": str(world.sandbox), "TMPDIR": str(world.sandbox)}
    with subprocess.Popen(  # noqa: S603 - our own script, started as every run is
        wrap(script, world, environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        cwd=world.sandbox,
        env=environment,
    ) as outermost:
        assert outermost.stdout is not None
        told = _hear(outermost.stdout.fileno(), _PATIENCE_MS, until=b"}\n")
        outermost.kill()
        outermost.wait()
        # Whatever lives on in there holds the other end open.
        return told or b"it did not answer", _hear(outermost.stdout.fileno(), _DEATH_MS) is None


def _hear(descriptor: int, patience_ms: int, until: bytes | None = None) -> bytes | None:
    """Read to the end, or until words; None when neither comes."""
    heard = b""
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    while poll.poll(patience_ms):
        words = os.read(descriptor, 1 << 16)
        heard += words
        if not words or (until is not None and heard.endswith(until)):
            return heard
    return None


def _judge(report: dict[str, object], world: World, *, is_alone: bool) -> str:
    """Tell the first thing that should not have been possible, or that should have been and was not."""
    if report["sandbox"] is not True or report["shell"] is not True:
        return "a program inside could not write in its own sandbox, or start a shell"
    for attempt, what in _FORBIDDEN.items():
        if report[attempt]:
            return f"a program inside could {what}"
    if any(secret.with_name("planted").exists() for secret in world.secrets):
        return "a program inside could write outside of its sandbox"
    if report["seen"] != ([] if is_alone else ["cmdline"]):
        return "a program inside could look into a process outside"
    return ""
