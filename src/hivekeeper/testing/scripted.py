"""A fake agent: plays small steps in its current directory, well or badly, as a script or a seed says.

    python -m hivekeeper.testing.scripted SCRIPT.json
    python -m hivekeeper.testing.scripted --seed 7 --faults crash=0.2,hang=0.1

A script is a JSON list of steps, each a word, or a word with what it takes: `["think", {"edit": "a.txt"}, "lie"]`.
Without one the agent works well, or has one fault, chosen by the seed, its task and its attempt alone: whoever knows
these three knows what it did. Like every agent it learns from its environment which task it works on.
"""

import argparse
import json
import math
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from hivekeeper.domain.names import find_nearest
from hivekeeper.errors import InputError

# A task that was unlucky that often is left in peace, so that a rehearsal comes to an end.
LAST_FAULTY_ATTEMPT = 3
_WORD_EVERY_S = 0.2


class Verb(StrEnum):
    """What a step does."""

    THINK = "think"
    SLOW = "slow"
    SAY = "say"
    EDIT = "edit"
    APPEND = "append"
    COMMIT = "commit"
    FLOOD = "flood"
    IGNORE_SIGTERM = "ignore-sigterm"
    FORK_AWAY = "fork-away"
    HALF = "half"
    LIE = "lie"
    CRASH = "crash"
    DIE = "die"
    HANG = "hang"
    BOMB = "bomb"
    FILL = "fill"
    WRECK = "wreck"
    TRAP = "trap"


class Fault(StrEnum):
    """What may be wrong with an attempt."""

    CRASH = "crash"
    HANG = "hang"
    LIE = "lie"
    FLOOD = "flood"
    DIE = "die"
    FORK = "fork"
    HALF = "half"
    DEAF = "deaf"
    BOMB = "bomb"
    FILL = "fill"
    VANDAL = "vandal"
    TRAP = "trap"


Argument = float | str | None
Rates = Mapping[Fault, float]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do; without an argument it takes the usual one of `STEPS`."""

    verb: Verb
    argument: Argument = None


WORK = (Step(Verb.THINK), Step(Verb.EDIT), Step(Verb.COMMIT), Step(Verb.THINK), Step(Verb.SAY, "done"))

FAULTS: dict[Fault, tuple[Step, ...]] = {
    Fault.CRASH: (Step(Verb.THINK), Step(Verb.EDIT), Step(Verb.CRASH)),
    Fault.HANG: (Step(Verb.EDIT), Step(Verb.HANG)),
    Fault.LIE: (Step(Verb.THINK), Step(Verb.SAY, "done"), Step(Verb.LIE)),
    Fault.FLOOD: (Step(Verb.EDIT), Step(Verb.FLOOD)),
    Fault.DIE: (Step(Verb.EDIT), Step(Verb.COMMIT), Step(Verb.DIE)),
    # What it left running must be ended; what it made is as good as any.
    Fault.FORK: (Step(Verb.FORK_AWAY), Step(Verb.THINK), Step(Verb.EDIT)),
    Fault.HALF: (Step(Verb.THINK), Step(Verb.HALF)),
    Fault.DEAF: (Step(Verb.IGNORE_SIGTERM), Step(Verb.EDIT), Step(Verb.HANG)),
    # Where no limit ends them, silence does.
    # They talk on, so that on a busy machine it is not their silence that ends them.
    Fault.BOMB: (Step(Verb.EDIT), Step(Verb.BOMB), Step(Verb.SLOW, 60.0), Step(Verb.HANG)),
    Fault.FILL: (Step(Verb.EDIT), Step(Verb.FILL), Step(Verb.SLOW, 60.0), Step(Verb.HANG)),
    Fault.VANDAL: (Step(Verb.EDIT), Step(Verb.COMMIT), Step(Verb.WRECK), Step(Verb.CRASH)),
    # Whoever runs git in what it leaves runs its program; what it made is as good as any.
    Fault.TRAP: (Step(Verb.EDIT), Step(Verb.COMMIT), Step(Verb.APPEND), Step(Verb.TRAP), Step(Verb.THINK)),
}
# With these an attempt may be complete.
HARMLESS = frozenset({Fault.FORK, Fault.TRAP})
LEFT_BY_TRAPS = (".gitattributes",)


def choose_fault(seed: int, task: str, attempt: int, rates: Rates) -> Fault | None:
    """Choose what is wrong with an attempt: one fault at most, each as often as its rate says."""
    if attempt > LAST_FAULTY_ATTEMPT:
        return None
    drawn = random.Random(f"{seed} {task} {attempt}").random()  # noqa: S311 - a choice, not a secret
    for fault in Fault:
        drawn -= rates.get(fault, 0.0)
        if drawn < 0:
            return fault
    return None


def choose_faults(seed: int, task: str, attempt: int, rates: Rates) -> list[Step]:
    """List the steps of an attempt's fault; none when it has none."""
    fault = choose_fault(seed, task, attempt, rates)
    return [] if fault is None else list(FAULTS[fault])


def parse_rates(text: str) -> dict[Fault, float]:
    """Read `crash=0.2,hang=0.1`; `none` is no fault at all."""
    rates: dict[Fault, float] = {}
    for part in text.split(",") if text != "none" else ():
        name, _, number = part.strip().partition("=")
        if name not in list(Fault):
            raise InputError(
                f"There is no fault '{name}'.{_suggest(name, Fault)}", advice=f"Faults: {', '.join(Fault)}."
            )
        try:
            rate = float(number)
        except ValueError:
            raise InputError(f"'{part.strip()}' has no rate.", advice=f"Write for instance {name}=0.2.") from None
        if not 0 <= rate <= 1:  # written so that NaN fails too
            raise InputError(f"The rate of '{name}' is {number}; it must be between 0 and 1.")
        if name in rates:
            raise InputError(f"The fault '{name}' is given twice; keep one.")
        rates[Fault(name)] = rate
    if (total := sum(rates.values())) > 1 + 1e-9:
        raise InputError(
            f"The rates add up to {total:g}.", advice="An attempt has one fault at most: 1 is all there is."
        )
    return rates


def read_script(path: Path) -> list[Step]:
    """Read a script; InputError names the first step that is none."""
    try:
        items = json.loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError as error:
        raise InputError(f"{path} is not JSON: {error}.") from None
    if not isinstance(items, list):
        raise InputError(f"{path} is not a list of steps.", advice='For instance: ["think", {"edit": "a.txt"}]')
    return [_read_step(f"{path}: step {number}", item) for number, item in enumerate(items, start=1)]


def _read_step(where: str, item: object) -> Step:
    match item:
        case str(verb):
            argument = None
        case dict() if len(item) == 1:
            ((verb, argument),) = item.items()
        case _:
            raise InputError(f'{where} is neither a word nor a word with what it takes, as in {{"crash": 3}}.')
    if verb not in list(Verb):
        raise InputError(
            f"{where}: there is no step '{verb}'.{_suggest(verb, Verb)}", advice=f"Steps: {', '.join(Verb)}."
        )
    match STEPS[Verb(verb)][1], argument:
        case (_, None) | (str(), str()):
            pass
        case float(), int() | float() if not isinstance(argument, bool) and 0 <= argument < math.inf:
            pass
        case usual, _:
            takes = "nothing" if usual is None else "text" if isinstance(usual, str) else "a number from 0 on"
            raise InputError(f"{where}: '{verb}' takes {takes}.")
    return Step(Verb(verb), argument)


def _suggest(word: str, options: Iterable[str]) -> str:
    nearest = find_nearest(word, options)
    return f" Did you mean '{nearest}'?" if nearest else ""


@dataclass(frozen=True, slots=True)
class Agent:
    """Who plays: the attempt it is, the files it makes when a step names none, and what a trap of its own writes to."""

    convoy: str
    task: str
    attempt: int
    files: tuple[Path, ...]
    canary: Path

    @property
    def words(self) -> str:
        """What it writes: of no other task, and of no other attempt."""
        return f"{self.convoy}/{self.task}, attempt {self.attempt}\nThis line makes it whole.\n"

    def place(self, name: str) -> tuple[Path, ...]:
        """Find the files a step is about."""
        paths = (Path(name),) if name else self.files
        for path in paths:
            path.parent.mkdir(parents=True, exist_ok=True)
        return paths


def play(agent: Agent, steps: Sequence[Step]) -> None:
    """Play one step after the other, as far as they let us."""
    for step in steps:
        act, usual = STEPS[step.verb]
        act(agent, usual if step.argument is None else step.argument)


def _say(_agent: Agent, words: str) -> None:
    sys.stdout.write(words + "\n")
    sys.stdout.flush()


def _think(agent: Agent, seconds: float) -> None:
    _say(agent, "thinking")
    time.sleep(seconds)


def _work_slowly(agent: Agent, seconds: float) -> None:
    """Take long, with a word now and then: slow is not silent."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        _think(agent, min(left, _WORD_EVERY_S))


def _edit(agent: Agent, name: str) -> None:
    for path in agent.place(name):
        path.write_text(agent.words)


def _append(agent: Agent, name: str) -> None:
    for path in agent.place(name):
        with path.open("a") as file:
            file.write(agent.words)


def _commit(agent: Agent, message: str) -> None:
    if not Path(".git").exists():  # a plain directory; a repository around it is not ours to write to
        return
    identity = {f"GIT_{who}_{what}": "scripted" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
    environment = {**identity, **os.environ, "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}
    message = message or f"{agent.task}, attempt {agent.attempt}"
    for argv in (("git", "add", "--all"), ("git", "commit", "--quiet", "-m", message)):
        if code := subprocess.run(argv, env=environment, check=False).returncode:
            sys.exit(code)


def _flood(agent: Agent, size: float) -> None:
    line = "x" * 1023
    for _ in range(int(size) // 1024):
        _say(agent, line)


def _ignore_sigterm(_agent: Agent, _: None) -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _fork_away(_agent: Agent, _: None) -> None:
    """Leave a process in a session of its own, with our environment and our output in its hands."""
    os.posix_spawnp("sleep", ("sleep", "100000"), os.environ, setsid=True)


def _write_half(agent: Agent, name: str) -> None:
    for path in agent.place(name):
        path.write_text(agent.words[: len(agent.words) // 2])
    sys.exit(1)


def _lie(_agent: Agent, _: None) -> None:
    sys.exit(0)


def _crash(_agent: Agent, code: float) -> None:
    sys.exit(int(code))


def _die(_agent: Agent, _: None) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _hang(_agent: Agent, _: None) -> None:
    while True:
        signal.pause()


def _bomb(_agent: Agent, processes: float) -> None:
    for _ in range(int(processes)):
        os.posix_spawnp("sleep", ("sleep", "100000"), os.environ)


def _fill(_agent: Agent, size: float) -> None:
    """Write many files, because no single one may be large."""
    for number in range(int(size) >> 20):
        Path(f"junk-{number}").write_bytes(bytes(1 << 20))


def _wreck(_agent: Agent, _: None) -> None:
    """Delete everything here, what git keeps included, if here is a sandbox and nothing else."""
    if Path(os.environ.get("HIVE_ROOT", ""), ".hive", "sandboxes") not in Path.cwd().parents:
        return
    for path in Path.cwd().iterdir():
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def _trap(agent: Agent, canary: str) -> None:
    """Have a program named wherever git might start one: in hooks, filters, and what is asked about changes."""
    git = Path(".git")
    if not git.is_dir():
        return
    told = shlex.quote(f"{agent.convoy}/{agent.task} {agent.attempt}: ")
    program = git.resolve() / "canary"
    program.write_text(f'#!/bin/sh\necho {told}"$0 $*" >> {shlex.quote(canary or str(agent.canary))}\nexec cat\n')
    program.chmod(0o755)
    (git / "hooks").mkdir(exist_ok=True)
    for hook in ("post-checkout", "post-index-change", "pre-commit", "pre-push", "reference-transaction"):
        shutil.copy(program, git / "hooks" / hook)
    said = shlex.quote(str(program)).replace("\\", "\\\\").replace('"', '\\"')
    keys = {"filter": ("clean", "smudge", "process"), "diff": ("command", "textconv"), "merge": ("driver",)}
    named = "".join(f'[{key} "canary"]\n' + "".join(f'{name} = "{said}"\n' for name in keys[key]) for key in keys)
    with (git / "config").open("a") as config:
        config.write(f'{named}[core]\nfsmonitor = "{said}"\nsshCommand = "{said}"\n[diff]\nexternal = "{said}"\n')
    Path(*LEFT_BY_TRAPS).write_text("* filter=canary diff=canary merge=canary\n")


# Every step, with what it takes when the script does not say; "" is the agent's own file or words, None is nothing.
STEPS: dict[Verb, tuple[Callable[[Agent, Any], None], Argument]] = {
    Verb.THINK: (_think, 0.05),
    Verb.SLOW: (_work_slowly, 1.0),
    Verb.SAY: (_say, ""),
    Verb.EDIT: (_edit, ""),
    Verb.APPEND: (_append, ""),
    Verb.COMMIT: (_commit, ""),
    Verb.FLOOD: (_flood, 4.0 * 1024 * 1024),
    Verb.IGNORE_SIGTERM: (_ignore_sigterm, None),
    Verb.FORK_AWAY: (_fork_away, None),
    Verb.HALF: (_write_half, ""),
    Verb.LIE: (_lie, None),
    Verb.CRASH: (_crash, 1.0),
    Verb.DIE: (_die, None),
    Verb.HANG: (_hang, None),
    Verb.BOMB: (_bomb, 64.0),
    Verb.FILL: (_fill, 8.0 * 1024 * 1024),
    Verb.WRECK: (_wreck, None),
    Verb.TRAP: (_trap, ""),
}


def _parse(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripted", description="Play an agent.")
    parser.add_argument("script", nargs="?", type=Path, help="a JSON list of steps")
    parser.add_argument("--seed", type=int, default=0, help="chooses the faults")
    parser.add_argument("--faults", default="none", help="how often what goes wrong: crash=0.2,hang=0.1")
    parser.add_argument("--marks", type=Path, help="append 'CONVOY/TASK ATTEMPT' to this file at the beginning")
    parser.add_argument(
        "--file", type=Path, action="append", help="a file to make, also several; by default one named after the task"
    )
    said = parser.parse_args(argv)
    if said.script and said.faults != "none":
        parser.error("a script and faults do not go together: the script says everything")
    return said


def _read_agent(said: argparse.Namespace) -> Agent:
    names = ("HIVE_CONVOY", "HIVE_TASK", "HIVE_ATTEMPT")
    convoy, task, attempt = (os.environ.get(name, "") for name in names)
    if not convoy or not task or not attempt.isdecimal():
        raise InputError(f"{', '.join(names)} must say which attempt this is.")
    files = tuple(said.file or (Path("rehearsed") / f"{task}.txt",))
    return Agent(
        convoy, task, int(attempt), files, (said.marks or Path(tempfile.gettempdir(), "marks")).with_name("canary")
    )


def _leave_mark(marks: Path, agent: Agent) -> None:
    descriptor = os.open(marks, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    os.write(descriptor, f"{agent.convoy}/{agent.task} {agent.attempt}\n".encode())  # at once: others write here too
    os.close(descriptor)


def main(argv: Sequence[str]) -> None:
    """Be the agent."""
    said = _parse(argv)
    try:
        agent, rates = _read_agent(said), parse_rates(said.faults)
        steps = read_script(said.script) if said.script else choose_faults(said.seed, agent.task, agent.attempt, rates)
    except InputError as error:
        sys.stderr.write(f"scripted: {' '.join(str(error).splitlines())}\n")  # a hive keeps the last line
        sys.exit(error.exit_code)
    if said.marks:
        _leave_mark(said.marks, agent)
    play(agent, steps if said.script or steps else WORK)


if __name__ == "__main__":
    main(sys.argv[1:])
