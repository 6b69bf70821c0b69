"""Every fault of a model's service, with every program: how the session ended is told right, whatever its exit code."""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest

from hivekeeper.domain.report import Outcome, Report
from hivekeeper.domain.runner import Runner
from hivekeeper.runners import PRESETS, make_reader
from hivekeeper.runners.reading import Lines, Reader
from tests.agents.conftest import need
from tests.agents.stage import CREATE, DO_IT, PROGRAMS, RING, Step, fail_first, fail_with, make_environment
from tests.budget import SEED, SOAK
from tests.fakemodel.server import FakeModel

AT_ONCE = 6
LATEST_S = 20.0
LEAST_SILENCE_S = 5.0  # whoever said something since then is no silent one
PROMPT = "Please create made.txt and commit it.\n"

DONE, EMPTY, REFUSED, KILLED = Outcome.DONE, Outcome.EMPTY, Outcome.REFUSED, Outcome.KILLED
LIMITED, QUOTA, AUTH = Outcome.RATE_LIMITED, Outcome.QUOTA, Outcome.AUTH
CONTEXT, FAILED, SILENT = Outcome.CONTEXT_LIMIT, Outcome.SERVER_ERROR, Outcome.NO_ANSWER


@dataclass(frozen=True)
class Case:
    """What the model does, what that is, and how long the program has; where a program differs, what it is there."""

    rules: list[Step]
    is_: Outcome
    within_s: float = 120.0
    but: dict[str, Outcome | tuple[Outcome, ...]] | None = None

    def list_right(self, program: str) -> tuple[Outcome, ...]:
        """List what it may be for a program: where the moment decides, either, each with or without its commit."""
        right = (self.but or {}).get(program, self.is_)
        return right if isinstance(right, tuple) else (right,)


def after(first: Step) -> list[Step]:
    return [{"when": CREATE["when"], "steps": [first, *DO_IT]}]


SOON, ENDLESS = 16.0, "endless tool calls"
# What a program keeps trying is ended by us: what it said last is what it was.
CASES = {
    "ok": Case([], DONE),
    "429 twice, then ok": Case([fail_first(2, "429", retry_after=1)], DONE, 150.0),
    "429 always": Case(fail_with("429", retry_after=1), LIMITED, 45.0),
    # Codex says that it waits, and gemini gives up; the others sit there in silence.
    "429, retry after an hour": Case(
        fail_with("429", retry_after=3600), SILENT, 30.0, {"codex": LIMITED, "gemini": LIMITED, "claude": LIMITED}
    ),
    # Claude tells that it is limited, and not by what.
    "quota": Case(fail_with("quota"), QUOTA, 45.0, {"claude": LIMITED}),
    "400": Case(fail_with("400"), REFUSED),
    "401": Case(fail_with("401"), AUTH),
    "402": Case(fail_with("402"), QUOTA),
    "403": Case(fail_with("403"), AUTH),
    "404": Case(fail_with("404"), REFUSED),
    "500 twice, then ok": Case([fail_first(2, "500")], DONE, 150.0),
    "500 always": Case(fail_with("500"), FAILED, 45.0),
    "529 always": Case(fail_with("529"), FAILED, 45.0),
    "context": Case(fail_with("context"), CONTEXT),
    "reset always": Case(fail_with("reset"), FAILED, 45.0),
    # Gemini tries again if it sees the end of the answer before it has read the beginning.
    "cut once": Case([fail_first(1, "cut")], DONE, 120.0, {"goose": FAILED, "gemini": (FAILED, DONE)}),
    "hang": Case(fail_with("hang"), SILENT, SOON),
    "stall": Case(fail_with("stall"), SILENT, SOON),
    "empty": Case(fail_with("empty"), EMPTY),
    "malformed": Case(fail_with("malformed"), FAILED),
    "a web page": Case(fail_with("html"), FAILED, 120.0, {"goose": EMPTY, "pi": EMPTY}),
    # Gemini does not tell that its answer was cut; it has done nothing, though.
    "cut by the token limit": Case(fail_with("length"), CONTEXT, 120.0, {"gemini": REFUSED}),
    "refusal": Case(fail_with("refusal"), REFUSED),
    "broken arguments, then ok": Case(after({"fault": "badargs"}), DONE),
    "unknown tool, then ok": Case(after({"fault": "unknown_tool"}), DONE),
    # Gemini stops by itself when it has called the same thing five times, and calls that a success.
    ENDLESS: Case(
        [{"when": {"prompt": "create"}, "loop": True, "steps": [{"shell": "date"}]}], KILLED, 150.0, {"gemini": DONE}
    ),
}
NOBODY = "nothing listens"
UNHEARD = Case([], FAILED, 45.0)


def choose_cases(program: str) -> list[str]:
    """Choose the faults that a program meets with this commit: every other one; a soak has every pair."""
    names, (shift, half) = [*CASES, NOBODY], (SEED % len(RING), SEED // len(RING) % 2)
    return [
        name
        for place, name in enumerate(names)
        if SOAK or (RING[(place + shift) % len(RING)] == program and place // len(RING) % 2 == half)
    ]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("program", PROGRAMS)
def test_whatever_the_service_does_its_end_is_told_right(program: str) -> None:
    need(program)
    with ThreadPoolExecutor(AT_ONCE) as several:
        tried = {
            name: several.submit(try_case, PRESETS[program], CASES.get(name, UNHEARD), nobody=name == NOBODY)
            for name in choose_cases(program)
        }
    wrong = []
    for name, future in tried.items():
        report, status, has_commit = future.result()
        case = CASES.get(name, UNHEARD)
        if report.outcome not in case.list_right(program):
            wrong.append(f"{name}: {report.outcome} (exit code {status}): {report.words[:200]}")
        if has_commit != (report.outcome is DONE and name != ENDLESS):
            wrong.append(f"{name}: {report.outcome}, and the commit is {'there' if has_commit else 'not there'}")
    assert wrong == []


def try_case(runner: Runner, case: Case, *, nobody: bool = False) -> tuple[Report, int, bool]:
    """Run a program on a repository with a model that behaves so; read what it said as the hive would."""
    directory = Path(tempfile.mkdtemp(prefix=f"hive-{runner.name}-"))
    try:
        with FakeModel({"rules": [*case.rules, CREATE]}) as model:
            url = "http://127.0.0.1:9" if nobody else model.url
            environment = make_environment(directory / "home", url)
            # Whoever never stops need not be waited for.
            within_s = 8.0 if case.rules == CASES[ENDLESS].rules and runner.name != "gemini" else case.within_s
            return run_program(runner, directory, environment, within_s)
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def run_program(
    runner: Runner, directory: Path, environment: dict[str, str], within_s: float
) -> tuple[Report, int, bool]:
    work, prompt, output = directory / "work", directory / "prompt", directory / "output"
    prompt.write_text(PROMPT)
    git = "git init -q -b main . && git commit -q --allow-empty -m first"
    work.mkdir()
    subprocess.run(("sh", "-c", git), cwd=work, env=environment, check=True)
    told = {"HIVE_PROMPT": str(prompt), "HIVE_HOME": environment["HOME"], "TMPDIR": str(directory)}
    told |= {"HIVE_PYTHON": sys.executable}
    session = "7d9f2c6e-58a5-4a35-9b63-0c5b1f6f2a11"
    reader = make_reader(runner)
    with output.open("wb") as said:
        process = subprocess.Popen(
            runner.make_argv(session),
            cwd=work,
            env={**environment, **runner.environment, **told},
            stdout=said,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        ended_by = listen(process, output, reader, within_s)
    report = reader.report(process.returncode, ended_by, must_act=True)
    has_commit = (
        b"create made.txt"
        in subprocess.run(
            ("git", "log", "--format=%s"), cwd=work, env=environment, check=True, capture_output=True
        ).stdout
    )
    return report, process.returncode, has_commit


def listen(process: subprocess.Popen[bytes], output: Path, reader: Reader, within_s: float) -> str:
    """Read what a program says until it ends, or must be ended as the hive would; tell how that was."""
    lines, deadline, ended_by = Lines(), time.monotonic() + within_s, "exit"
    with output.open("rb") as file:
        while process.poll() is None:
            for line in lines.feed(file.read()):
                reader.take(line)
            is_silent = time.time() - output.stat().st_mtime > LEAST_SILENCE_S
            # One that began late, on a busy machine, is given time to fall silent.
            is_late = time.monotonic() > deadline + (0.0 if is_silent else LATEST_S)
            if is_late or reader.hopeless:
                ended_by = "limit" if reader.hopeless else "silence" if is_silent or reader.problem else "wall"
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            time.sleep(0.1)  # real time: another process works
        for line in (*lines.feed(file.read()), *lines.end()):
            reader.take(line)
    return ended_by
