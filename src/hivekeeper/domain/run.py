"""What may be found of a run on this machine, and what to do about it."""

import hashlib
from dataclasses import dataclass
from typing import Any, assert_never

from hivekeeper.domain.events import encode_json
from hivekeeper.domain.states import RunState

# Why a stop was requested: by a person, or for a reason that does not end the attempt.
PERSON, MESSAGE, BUDGET, LIMIT, DOWN = "person", "message", "budget", "limit", "down"
FINISHED, HELP, HANDED_OFF = "finished", "help", "handed off"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Exactly what to run; argv is executed without a shell.

    `mounts` is what a worker's run may access; `inherit` in it names variables of the keeper's environment, and
    `outside` is the number of words of argv that run outside of the sandbox and start the rest inside. `runner` is the
    agent program, and `session` its conversation if known in advance.
    """

    argv: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    limits: dict[str, Any]
    mounts: dict[str, list[str]] | None = None
    runner: str | None = None
    session: str | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """A run's name and spec, as handed to the nursery."""

    run: str
    kind: str
    argv: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    limits: dict[str, Any]
    mounts: dict[str, list[str]] | None = None
    identity: str = ""

    @property
    def outside(self) -> int:
        """The number of words of argv that run outside of the sandbox."""
        return int(*(self.mounts or {}).get("outside", ()))

    @property
    def digest(self) -> str:
        """A hash that tells this order from one of the same name, given before a ledger was restored."""
        return self.identity or digest_order(encode_json(self.argv), self.directory, encode_json(self.environment))


def digest_order(argv: str, directory: str, environment: str) -> str:
    """Hash an order, from its parts as stored in the ledger."""
    return hashlib.sha256(f"{argv}\0{directory}\0{environment}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Claim:
    """The wrapper that took the run, identified beyond its pid because pids are reused, and the digest of its order."""

    pid: int
    start_ticks: int
    boot_id: str
    at: str
    order: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, as its wrapper recorded it."""

    status: int
    ended_by: str
    output_bytes: int
    at: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """It was not started."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Its wrapper is alive and has written no exit record."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Ended:
    """Its wrapper wrote an exit record."""

    claim: Claim
    ending: Ending


@dataclass(frozen=True, slots=True)
class Gone:
    """Its wrapper died without an exit record; `leftovers` are its processes that are still alive."""

    claim: Claim | None
    leftovers: tuple[int, ...] = ()
    why: str = "its wrapper was killed"


Look = Unclaimed | Alive | Ended | Gone


@dataclass(frozen=True, slots=True)
class Start:
    """Request a start; a second request has no effect."""


@dataclass(frozen=True, slots=True)
class NoteStarted:
    """Record that it started."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class NoteEnded:
    """Record how it ended, and first its start if that was not recorded."""

    claim: Claim
    ending: Ending


@dataclass(frozen=True, slots=True)
class NoteLost:
    """Record that it is LOST."""

    why: str


@dataclass(frozen=True, slots=True)
class Forbid:
    """Put a claim in place without a wrapper, so that it can never start."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Tell its wrapper to stop its processes."""


@dataclass(frozen=True, slots=True)
class KillLeftovers:
    """Kill the processes that its dead wrapper left behind; the next pass looks again."""

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do."""


Verdict = Start | NoteStarted | NoteEnded | NoteLost | Forbid | Stop | KillLeftovers | Wait


def decide_run(state: RunState, look: Look, *, intended_here: bool, kill: bool, order: str = "") -> Verdict:
    """Decide what to do about an open run. `intended_here`: its intent was written in this boot.

    `order` is the digest of the intended order. After a restore of the ledger there may be a run of that name: one of
    the same order is adopted, so that nothing runs twice; the end of another order says nothing about this one.
    """
    if state not in (RunState.INTENDED, RunState.RUNNING):
        return Wait()
    if state is RunState.INTENDED and isinstance(look, Alive | Ended) and look.claim.order not in ("", order):
        return Stop() if isinstance(look, Alive) else NoteLost("another order was run under its name")
    match look:
        case Ended(claim, ending):
            return NoteEnded(claim, ending)
        case Alive(claim):
            if state is RunState.INTENDED:
                return NoteStarted(claim)
            return Stop() if kill else Wait()
        case Gone(_, leftovers, why):
            return KillLeftovers(leftovers) if leftovers else NoteLost(why)
        case Unclaimed():
            if state is RunState.RUNNING:
                return NoteLost("its directory is gone")
            if not intended_here:
                # A power cut may have lost the claim: it may have run.
                return NoteLost("the machine restarted before its start was known")
            return Forbid() if kill else Start()
        case _:
            assert_never(look)
