"""One place where scenarios are played over and over: prepared once, then for every point put back, killed, recovered.

The place has always the same path, because a ledger remembers paths. Whoever acts or recovers is forked from this
process, which has imported everything and opened nothing: fresh, at a tenth of the time a new interpreter takes.
"""

import contextlib
import ctypes
import json
import os
import shutil
import signal
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.crash.gitshim import GitShim
from tests.crash.playing import Scenario
from tests.crash.scenarios import SCENARIOS
from tests.crash.stage import Play
from tests.crash.tracing import Fault, count_points, has_fired, record_calls, run_traced, strike_call, wait_for_end

Job = Callable[[], None]
_PR_SET_CHILD_SUBREAPER = 36
_TRIES = 3
PATIENCE_S, PATIENCE_WITH_ERRORS_S = 60.0, 4.0


@dataclass(frozen=True)
class Point:
    """Where a scenario is struck: once, or again while it is being recovered."""

    scenario: str
    fault: Fault
    again: Fault | None = None
    in_git: str = ""  # which git is struck, instead of the keeper: `push.1` is the first push, `push.1!` with its run

    def __str__(self) -> str:
        place = f"{self.scenario}/" + (f"git={self.in_git}/" if self.in_git else "") + str(self.fault)
        return place + (f"/{self.again}" if self.again else "")


@dataclass
class Verdict:
    """What became of a point."""

    point: str
    violations: list[str] = field(default_factory=list)
    fired: bool = True
    states: dict[str, str] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)  # of passes that failed and were made again
    leftovers: list[str] = field(default_factory=list)  # processes that had not ended when everything had


class Slot:
    """A directory and the process that plays in it."""

    def __init__(self, directory: Path) -> None:
        self.world = directory / "world"
        self.templates = directory / "templates"
        self.log = directory / "strace.log"
        self.stage = Play(self.world)
        self.shim = GitShim(directory / "shim")
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._now = ""
        self._leftovers: list[str] = []
        self._ends = directory / "ends.json"

    def prepare(self, name: str, in_boot: Callable[[Job], Job] = lambda job: job) -> Scenario:
        """Build the world in which a scenario begins, in this boot or in an earlier one, once, and keep a copy."""
        scenario, self._now = SCENARIOS[name], name
        template = self.templates / name
        if not template.exists():
            self._wipe(self.world)
            self.world.mkdir(parents=True)
            problem = self._in_child(in_boot(lambda: scenario.given(self.stage)))
            assert not problem, f"{name} could not be prepared: {problem}"
            self._end_everybody()
            self.templates.mkdir(exist_ok=True)
            self._copy(self.world, template)
        return scenario

    def list_points(self, name: str) -> list[Point]:
        """Play a scenario undisturbed and list every point of it; it must be right when nobody disturbs it."""
        scenario = self.prepare(name)
        self._put_back()
        if scenario.by_git:
            return self._list_git_points(name, scenario)
        status = run_traced(lambda: scenario.act(self.stage), record_calls(self.log))
        log = self.log.read_text()
        problems = [f"it ended with {status}"] if status else []
        problems += self._recover(scenario) or self.stage.list_errors()
        assert not problems, f"{name} undisturbed: {problems}"
        return [Point(name, fault) for fault in count_points(log)]

    def _list_git_points(self, name: str, scenario: Scenario) -> list[Point]:
        points = []
        with self.shim.installed(record=True):
            problem = self._in_child(lambda: scenario.act(self.stage))
        problems = ([problem] if problem else []) + (self._recover(scenario) or self.stage.list_errors())
        assert not problems, f"{name} undisturbed: {problems}"
        for git, log in self.shim.read_logs():
            points += [Point(name, fault, in_git=git + end) for fault in count_points(log) for end in ("", "!")]
        return points

    def list_recovery_points(self, name: str) -> list[Fault]:
        """List the points of the recovery itself, after an act that nobody disturbed."""
        scenario = self.prepare(name)
        self._put_back()
        self._in_child(lambda: scenario.act(self.stage))
        run_traced(lambda: scenario.recover(self.stage), record_calls(self.log))
        return count_points(self.log.read_text())

    def strike(self, point: Point) -> Verdict:
        """Play a scenario, strike it at a point, let somebody else recover it, and judge."""
        verdict = Verdict(str(point))
        for _ in range(_TRIES):
            scenario = self.prepare(point.scenario)
            self._put_back()
            try:
                verdict.fired = self._act(scenario, point)
                if point.again:
                    verdict.fired &= self._recover_and_die(scenario, point.again)
                verdict.violations = self._recover(scenario)
                verdict.states = self.states
            except TimeoutError as error:
                verdict.violations = [f"hung: {error}"]
            finally:
                self._end_everybody()
            verdict.errors, verdict.leftovers = self.stage.list_errors(), list(self._leftovers)
            if verdict.fired or verdict.violations:
                break  # else it took another course this time; a point that was not struck proves nothing
        return verdict

    def _act(self, scenario: Scenario, point: Point) -> bool:
        if point.in_git:
            with self.shim.installed(strike=point.in_git, fault=point.fault):
                self._in_child(lambda: scenario.act(self.stage))
            return self.shim.has_fired(point.fault)
        try:
            patience_s = PATIENCE_WITH_ERRORS_S if point.fault.error else PATIENCE_S
            status = run_traced(lambda: scenario.act(self.stage), strike_call(self.log, point.fault), patience_s)
        except TimeoutError:
            if not point.fault.error:
                raise
            status = -9  # on a disk that is broken for good nothing comes to an end, and trying again is all there is
        return has_fired(self.log.read_text(), status, point.fault)

    def _recover_and_die(self, scenario: Scenario, fault: Fault) -> bool:
        status = run_traced(lambda: scenario.recover(self.stage), strike_call(self.log, fault))
        return has_fired(self.log.read_text(), status, fault)

    def _recover(self, scenario: Scenario) -> list[str]:
        def recover() -> list[str]:
            scenario.recover(self.stage)
            _write(self._ends, self.stage.list_states())
            return self.stage.check() + scenario.check(self.stage)

        self._ends.unlink(missing_ok=True)
        return self._judge(recover)

    @property
    def states(self) -> dict[str, str]:
        """What has become of every task, as whoever recovered it last saw it."""
        return dict(json.loads(self._ends.read_text())) if self._ends.exists() else {}

    def check(self) -> list[str]:
        """Judge the world as it is."""
        return self._judge(self.stage.check)

    def _judge(self, job: Callable[[], list[str]]) -> list[str]:
        answer = self.world.with_name("answer.json")
        answer.unlink(missing_ok=True)
        problem = self._in_child(lambda: _write(answer, job()))
        return [f"recovery failed: {problem}"] if problem else list(json.loads(answer.read_text()))

    def _in_child(self, job: Callable[[], None]) -> str:
        """Do something in a forked process; tell what went wrong, or nothing."""
        words = self.world.with_name("words.txt")
        words.unlink(missing_ok=True)
        pid = os.fork()
        if pid == 0:
            code = 0
            try:
                job()
            except BaseException:  # noqa: BLE001 - whatever it is, the parent has to hear of it
                words.write_text(traceback.format_exc())
                code = 1
            finally:
                os._exit(code)
        status = wait_for_end(pid)
        if status == 0:
            return ""
        return words.read_text()[-1500:] if words.exists() else f"it ended with {status}"

    def _put_back(self) -> None:
        self._wipe(self.world)
        self._leftovers.clear()
        self._copy(self.templates / self._now, self.world)

    def _copy(self, source: Path, target: Path) -> None:
        pairs = [(_beside(source, end), _beside(target, end)) for end in ("", ".said", ".errors")]
        for old, new in pairs:
            if old.exists():
                subprocess.run(("cp", "-a", "--", str(old), str(new)), check=True)

    def _wipe(self, *places: Path) -> None:
        for place in places:
            shutil.rmtree(place, ignore_errors=True)
            for end in (".said", ".errors"):
                _beside(place, end).unlink(missing_ok=True)

    def _end_everybody(self) -> None:
        """Wait until nothing that was started here is alive: a latecomer would act in the next point's world.

        What has to be killed for that is noted.
        """
        deadline = time.monotonic() + 2.0
        while True:
            try:
                pid, _ = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                if time.monotonic() > deadline:
                    for child in _children():
                        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
                            said = Path(f"/proc/{child}/cmdline").read_bytes().replace(b"\0", b" ")
                            os.kill(child, signal.SIGKILL)
                            if said:  # else it is dead and not yet waited for
                                self._leftovers.append(said[:100].decode(errors="replace"))
                time.sleep(0.002)  # real time: other processes end


def _children() -> Iterator[int]:
    for path in Path("/proc/self/task").iterdir():
        yield from map(int, (path / "children").read_text().split())


def _beside(place: Path, end: str) -> Path:
    return place.with_name(f"{place.name}{end}")


def _write(path: Path, value: list[str] | dict[str, str]) -> None:
    path.write_text(json.dumps(value))
