"""One hive, kept: every part constructed, one thread a loop, and the only broad `except` of the package."""

import logging
import os
import shlex
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

from hivekeeper.config import agent_files
from hivekeeper.config.settings import ensure_file, load_settings
from hivekeeper.config.values import FILE_NAME
from hivekeeper.domain.attempt import is_saved
from hivekeeper.domain.events import Body
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.states import AttemptState
from hivekeeper.errors import HiveError, IllegalTransitionError, StaleEpochError
from hivekeeper.hive import Hive
from hivekeeper.keeper import lease
from hivekeeper.keeper.programs import (
    find_hive_isolation,
    find_problem,
    refuse_loosened,
    refuse_secrets,
    refuse_weak_isolation,
)
from hivekeeper.loops import Counts, Loop, Parts, Shutdown, find_loops
from hivekeeper.nudges import NudgeSocket, nudge
from hivekeeper.runs.local import LocalRuns, Runs
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox.isolation import Isolation
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_head

log = logging.getLogger("hivekeeper")

MAX_BACKOFF_S = 30.0
MAX_TURN_S = 0.1
SETTLED_AFTER_S = 0.5
# A fake agent for rehearsals: its prompt is a script of steps.
SCRIPTED = Runner("scripted", f"{shlex.quote(sys.executable)} -P -m hivekeeper.testing.scripted")


def _read_stamp(path: Path) -> tuple[int, int, int]:
    """Read what is another when a file was changed, or replaced, or is gone."""
    try:
        found = path.stat()
    except OSError:
        return 0, 0, 0
    return found.st_mtime_ns, found.st_size, found.st_ino


def _describe_ignored(used: int | None, wanted: int) -> str | None:
    if used in (None, wanted):
        return None
    return f"[hive] workers = {wanted} is not used: the keeper was started with --workers {used}."


class Keeper:
    """The coordinator of a hive. Construct it with the lease taken, `step` or `start` it, `close` it."""

    def __init__(self, hive: Hive, *, workers: int | None = None, runs: Runs | None = None) -> None:
        self.hive = hive
        self.clock = hive.ledger.clock
        self.stopped = threading.Event()
        self.fenced: StaleEpochError | None = None
        self.problems: dict[str, str] = {}
        refuse_secrets(hive.settings, hive.places)
        refuse_weak_isolation(hive, read_boot_id())
        ensure_file(hive.places.root)
        self._lease = lease.take(
            hive.ledger, hive.places.keeper_lock, self.clock, abandoned_after_s=hive.settings.abandoned_after_s
        )
        self.authority = self._lease.authority
        with hive.ledger.read() as connection:
            name = read_head(connection).hive
        self.changed = threading.Event()
        self.runs = runs or LocalRuns(hive.places.runs, name, self._note_change)
        self._isolation: Isolation | None = None
        self._workers = workers
        self._read_at = self._seen = _read_stamp(hive.places.root / FILE_NAME)  # whoever opened the hive has read it
        self._seen_s = 0.0
        self._shutdown = Shutdown()
        self.loops = self._build()
        self._nudges = {loop.name: threading.Event() for loop in self.loops}
        self._committed = threading.Event()
        self._turns = threading.Lock()
        self._threads: list[threading.Thread] = []
        self._socket: NudgeSocket | None = None

    def _build(self) -> Sequence[Loop]:
        settings = self.hive.settings
        parts = Parts(
            self.hive.ledger,
            self.authority,
            self.hive.places,
            self.runs,
            self.clock,
            replace(
                settings,
                workers=self._workers or settings.workers,
                runners={SCRIPTED.name: SCRIPTED, **settings.runners},
            ),
            self.find_isolation,
            lambda runner: find_problem(runner, self.find_isolation()),
            dict(os.environ),
            self._shutdown,
            self.problems,
            agent_files,
        )
        return [loop(parts) for loop in find_loops()]

    def find_isolation(self) -> Isolation:
        """Find how workers are isolated, once: trying to escape takes a moment."""
        if self._isolation is None:
            self._isolation = find_hive_isolation(self.hive, self.runs.boot_id)
        return self._isolation

    def reload_settings(self) -> bool:
        """Take up a changed hive.toml; False when there was none, or it cannot be used, which is told."""
        stamp = _read_stamp(self.hive.places.root / FILE_NAME)
        if stamp != self._seen:  # whoever writes it may not be done yet
            self._seen, self._seen_s = stamp, self.clock.monotonic()
        if (
            stamp == self._read_at
            or self._shutdown.since
            or self._shutdown.is_closing
            or self.clock.monotonic() - self._seen_s < SETTLED_AFTER_S
        ):
            return False
        self._read_at = stamp
        try:
            ensure_file(self.hive.places.root)
            new = replace(self.hive, settings=load_settings(self.hive.places.root))
            refuse_loosened(self.hive.settings, new.settings)
            refuse_secrets(new.settings, new.places)
            refuse_weak_isolation(new, self.runs.boot_id)
        except (HiveError, OSError) as error:
            self._note("hive.toml", f"{error} The old settings stay in use.")
            log.warning("hive.toml: %s", error)
            return False
        self._note("hive.toml", _describe_ignored(self._workers, new.settings.workers))
        if new.settings == self.hive.settings:
            return False
        self.hive, self._isolation = new, None
        for loop in self.loops:
            loop.unwatch()
        self.loops = self._build()  # as by a keeper that follows another: all that matters is in the ledger
        if self._threads:
            self._watch()
        log.warning("hive.toml reloaded")
        return True

    def step(self) -> Counts:
        """Run every loop once in this thread; tell what happened."""
        self.reload_settings()
        total: Counts = {}
        for loop in self.loops:
            for what, count in loop.run_once().items():
                total[f"{loop.name}.{what}"] = count
        return total

    def start(self) -> None:
        """Run one thread a loop until `close`."""
        self._socket = NudgeSocket(self.hive.places.nudge)
        # Our own commits wake exactly the loops that listen for them; the socket is for other processes.
        self.hive.ledger.on_commit[:] = [self._wake_listeners]
        targets: dict[str, Callable[[], None]] = {"nudges": self._listen}
        self._watch()
        for loop in self.loops:
            targets[loop.name] = lambda name=loop.name: self._run(name)  # type: ignore[misc]  # bound now, not later
        for name, target in targets.items():
            thread = threading.Thread(target=target, name=name, daemon=True)
            thread.start()
            self._threads.append(thread)

    def leave(self) -> tuple[int, int]:
        """Keep what every worker has made so far, as long as there is time; tell of how many, and how many there are.

        For a machine that is about to go: what was kept is where the next keeper goes on, here or elsewhere.
        """
        since = self._shutdown.since = self._shutdown.since or self.clock.now()
        self._wake_all()
        deadline = self.clock.monotonic() + self.hive.settings.preempt_s
        while True:
            with self.hive.ledger.read() as connection:
                runs = queries.list_runs_of_open_attempts(connection, AttemptState.WORKING)
            left = [is_saved(of_attempt, since=since) for of_attempt in runs.values()]
            at_work = [saved for saved in left if saved is not None]
            if all(at_work) or self.stopped.is_set() or self.clock.monotonic() > deadline:
                return sum(at_work), len(at_work)
            self.wait_for_commit(0.1)

    def close_down(self) -> Sequence[Loop]:
        """Begin nothing more but what keeps the work of workers that end; tell which loops that takes."""
        self._shutdown.is_closing = True
        return [loop for loop in self.loops if loop.saves_work]

    def close(self) -> None:
        """Stop the loops and give the lease back. What runs goes on running and is found again."""
        self.stopped.set()
        self._wake_all()
        nudge(self.hive.places.nudge)
        for thread in self._threads:
            thread.join()
        for loop in self.loops:
            loop.unwatch()
            loop.finish()
        if self._socket is not None:
            self._socket.close()
        self.runs.close()
        self._lease.release()

    def wait_for_commit(self, longest_s: float) -> None:
        """Wait until something was written, but not for ever."""
        self._committed.wait(longest_s)
        self._committed.clear()

    def _note_change(self) -> None:
        self.changed.set()
        for loop in self.loops:
            if loop.wakes.run_changed:
                self._wake(loop.name)

    def _watch(self) -> None:
        for loop in self.loops:
            loop.watch(partial(self._wake, loop.name))

    def _wake(self, name: str) -> None:
        if event := self._nudges.get(name):
            event.set()

    def _wake_all(self) -> None:
        for name in self._nudges:
            self._wake(name)

    def _wake_listeners(self, bodies: Sequence[Body]) -> None:
        self._committed.set()
        for loop in self.loops:
            if loop.hear(bodies):
                self._wake(loop.name)

    def _listen(self) -> None:
        """Wake every loop at a nudge from outside, or when the slow look at the file shows a write nobody told of."""
        assert self._socket is not None
        seen = self.hive.ledger.version()

        def is_over() -> bool:
            nonlocal seen
            now = self.hive.ledger.version()
            if now != seen:
                seen = now
                self._wake_all()
            if self.reload_settings():
                self._wake_all()
            return self.stopped.is_set()

        self._socket.listen(self._wake_all, poll_s=lambda: self.hive.settings.poll_s, is_over=is_over)

    def _run(self, name: str) -> None:
        event, failures = self._nudges[name], 0
        while not self.stopped.is_set():
            event.clear()  # before the pass: whatever happens during it deserves another
            loop = next(loop for loop in self.loops if loop.name == name)  # built anew with other settings
            try:
                with self._turn():
                    loop.run_once()
            except StaleEpochError as error:
                self.fenced = error
                self.stopped.set()
                return
            except Exception as error:  # noqa: BLE001 - one failing pass must not end the loop
                failures += 1
                self._report(loop, error, failures)
                self.stopped.wait(min(0.05 * 2**failures, MAX_BACKOFF_S))
                continue
            if failures:
                failures = 0
                self._note(loop.name, None)
            self.stopped.wait(loop.rest_s)
            event.wait(loop.interval_s)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        """Let passes take turns, but wait for nobody long.

        Two at once share one interpreter and both crawl; and a stuck one must not hold up the others.
        """
        taken = self._turns.acquire(timeout=MAX_TURN_S)
        try:
            yield
        finally:
            if taken:
                self._turns.release()

    def _note(self, name: str, problem: str | None) -> None:
        """Note what fails, for `hive status` too; None ends it."""
        self.problems.pop(name, None)
        if problem:
            self.problems[name] = problem
        self._wake("heart")

    def _report(self, loop: Loop, error: Exception, failures: int) -> None:
        if isinstance(error, IllegalTransitionError) and failures == 1:
            return  # a person was faster: the next pass sees what they did
        self._note(loop.name, str(error))
        known = isinstance(error, HiveError)
        log.log(logging.WARNING if known else logging.ERROR, "%s: %s", loop.name, error, exc_info=not known)
