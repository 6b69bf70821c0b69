"""Kills keepers at random moments: `python -m tests.crash.killer` reads `KILLS SEED` lines, answers a JSON line each.

Twelve branches of a person's are in the queue, four are verified at once. A keeper, threads and all, is killed after a
moment chosen by the seed, and another one follows; once everything has landed the world is judged, and put back as it
was at the beginning, until there were as many kills as were asked for.
"""

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from hivekeeper.commands.queue import submit_branch
from hivekeeper.errors import AnotherKeeperError
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from tests.crash.player import make_place
from tests.crash.stage import Play
from tests.stage import ME

BRANCHES = tuple(f"branch-{number:02}" for number in range(1, 13))
TRAIN = 4
MOST_COMMITS, LONGEST_S = 16, 0.03  # how long a keeper lives: so many commits, and a moment more
PATIENCE_S = 60.0
_PR_SET_CHILD_SUBREAPER = 36


class Killer:
    """A directory in which branches land, keepers die, and nothing may come of it."""

    def __init__(self, directory: Path) -> None:
        self.world, self.template = directory / "world", directory / "template"
        self.words = directory / "words.txt"
        self.stage = Play(self.world)
        self.stage.settings = replace(self.stage.settings, parallel=TRAIN)
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)

    def prepare(self) -> None:
        """Have a repository that the hive knows, and its branches in the queue."""
        self.world.mkdir()
        stage = self.stage
        stage.make_repository()
        for branch in BRANCHES:
            stage.git("switch", "--quiet", "--create", branch, "main")
            (stage.app / f"{branch}.txt").write_text(f"{branch}\n")
            stage.git("add", "--all")
            stage.git("commit", "--quiet", "-m", branch)
        stage.git("switch", "--quiet", "main")
        stage.make_hive()
        stage.submit(stage.task("a", repo=True), repos=(stage.repo(),))
        self._do(stage.finish)
        with stage.ledger() as ledger, ledger.write(ME) as tx:
            repo = queries.find_repo(tx.connection, "app")
            assert repo is not None
            for branch in BRANCHES:
                submit_branch(tx, repo, branch, stage.git("rev-parse", branch))
        self._end_everybody()
        self._copy(self.world, self.template)

    def play(self, kills: int, seed: str) -> dict[str, object]:
        """Kill so many keepers; tell how many worlds that took, and what was wrong with any of them."""
        chance, done, worlds, wrong = random.Random(seed), 0, 0, list[str]()  # noqa: S311 - a choice, not a secret
        while done < kills and not wrong:
            self._wipe()
            self._copy(self.template, self.world)
            worlds += 1
            # One of a world takes its runs along. More at the same thing would be for a person to look at.
            whole = chance.randrange(1, len(BRANCHES))
            of_world = 0
            while done < kills and self._kill_one(chance, whole=of_world == whole):
                of_world += 1
                done += 1
            wrong = self._judge()
        return {"kills": done, "worlds": worlds, "wrong": wrong}

    def _kill_one(self, chance: random.Random, *, whole: bool) -> bool:
        """Let a keeper live for a while; False when it had come to the end of its work by then."""
        left, more_s = chance.randint(1, MOST_COMMITS), chance.uniform(0.0, LONGEST_S)
        seen, told = os.pipe()
        pid = self._fork(lambda: self._keep(told))
        os.close(told)
        while left > 0 and (words := os.read(seen, left)):
            left -= len(words)
        os.close(seen)
        time.sleep(more_s)  # real time: the moment at which it dies
        os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
        if whole:
            self._end_everybody(at_once=True)
        return os.waitstatus_to_exitcode(status) == -signal.SIGKILL

    def _keep(self, told: int | None = None) -> None:
        """Be a keeper with all its threads, until everything is done; tell of every commit, and of no more."""
        with contextlib.ExitStack() as stack:
            keeper = self._follow(stack)
            keeper.start()
            while not self.stage.is_settled(keeper):
                keeper.wait_for_commit(0.5)
                if told is not None:
                    with contextlib.suppress(BrokenPipeError):
                        os.write(told, b".")

    def _follow(self, stack: contextlib.ExitStack) -> Keeper:
        """Follow the one that was killed; a child that it was about to start may hold its lock for another moment."""
        deadline = time.monotonic() + 5.0
        while True:
            try:
                return stack.enter_context(self.stage.keeper())
            except AnotherKeeperError:
                if time.monotonic() > deadline:
                    raise
            time.sleep(0.01)  # real time: another process ends

    def _judge(self) -> list[str]:
        """Let it come to its end, and see what has become of it."""
        found: list[str] = []
        try:
            self._do(self._keep)
            self._do(self._check)
        except AssertionError as problem:
            found.append(str(problem))
        self._end_everybody()
        return found

    def _check(self) -> None:
        wrong = self.stage.check()
        mirror = self.stage.places.mirror("app")
        argv = ("git", "--git-dir", str(mirror), "ls-tree", "--name-only", "main")
        there = subprocess.run(argv, check=True, capture_output=True, text=True).stdout.split()
        wrong += [f"lost: {branch}" for branch in BRANCHES if f"{branch}.txt" not in there]
        wrong += [f"{key} is {state}" for key, state in self.stage.list_states().items() if state != "COMPLETE"]
        assert not wrong, "\n".join([*wrong, "", self.stage.show()])

    def _do(self, job: Callable[[], None]) -> None:
        pid, deadline = self._fork(job), time.monotonic() + PATIENCE_S
        while not (found := os.waitpid(pid, os.WNOHANG))[0]:
            if time.monotonic() > deadline:
                os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)  # real time: another process ends
        words = self.words.read_text() if self.words.exists() else f"it ended with {found[1]}"
        assert found[1] == 0, words if self.words.exists() else f"{words}\n{self.stage.show()}"

    def _fork(self, job: Callable[[], None]) -> int:
        self.words.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            code = 1
            try:
                job()
                code = 0
            except BaseException:  # noqa: BLE001 - whatever it is, the parent has to hear of it
                self.words.write_text(traceback.format_exc())
            finally:
                os._exit(code)
        return pid

    def _end_everybody(self, *, at_once: bool = False) -> None:
        """Wait for whatever was started here, or kill it; who has lost its parent is ours."""
        deadline = time.monotonic() + (0.0 if at_once else 2.0)
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                if time.monotonic() > deadline:
                    for child in Path(f"/proc/self/task/{os.getpid()}/children").read_text().split():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(int(child), signal.SIGKILL)
                time.sleep(0.001)  # real time: other processes end

    def _copy(self, source: Path, target: Path) -> None:
        for end in ("", ".said"):
            old, new = (path.with_name(f"{path.name}{end}") for path in (source, target))
            if old.exists():
                subprocess.run(("cp", "-a", "--", str(old), str(new)), check=True)

    def _wipe(self) -> None:
        shutil.rmtree(self.world, ignore_errors=True)
        self.stage.said.unlink(missing_ok=True)


def main() -> None:
    """Answer until standard input ends."""
    place = make_place()
    try:
        killer = Killer(place)
        killer.prepare()
        for line in sys.stdin:
            kills, seed = line.split()
            sys.stdout.write(json.dumps(killer.play(int(kills), seed)) + "\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
