"""What a look at a run's directory may show, and what follows from it."""

import hashlib
from dataclasses import dataclass
from typing import Any, assert_never

from hivekeeper.domain.events import encode_json
from hivekeeper.domain.states import RunState

# Why a run is to end: because somebody said so, or for a reason that is no end of its attempt.
PERSON, MESSAGE, BUDGET, LIMIT, DOWN = "person", "message", "budget", "limit", "down"


@dataclass(frozen=True, slots=True)
class RunSpec:
    """Exactly what is to be run; argv is never a shell's text unless argv says so.

    `mounts` is what a worker's run may touch; `inherit` in it names what it is given of the keeper's environment, and
    `outside` is how many words of argv are a command of ours, which starts the rest of them in the sandbox. `runner`
    is the agent program it starts, and `session` its conversation, where that is known beforehand.
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
    """A run's spec under its name, as it is handed to whoever starts it."""

    run: str
    kind: str
    argv: tuple[str, ...]
    directory: str
    environment: dict[str, str]
    limits: dict[str, Any]
    mounts: dict[str, list[str]] | None = None

    @property
    def outside(self) -> int:
        """How many words of argv are not in the sandbox."""
        return int(*(self.mounts or {}).get("outside", ()))

    @property
    def digest(self) -> str:
        """Tell this order from another that was given under the same name, before a ledger was restored."""
        return digest_order(encode_json(self.argv), self.directory, encode_json(self.environment))


def digest_order(argv: str, directory: str, environment: str) -> str:
    """Make the digest of an order from its parts as the ledger keeps them."""
    return hashlib.sha256(f"{argv}\0{directory}\0{environment}".encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class Claim:
    """The wrapper that took the run, identified so that a reused pid is not mistaken for it, and what it was given."""

    pid: int
    start_ticks: int
    boot_id: str
    at: str
    order: str = ""


@dataclass(frozen=True, slots=True)
class Ending:
    """How a run ended, in its wrapper's words."""

    status: int
    ended_by: str
    output_bytes: int
    at: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Unclaimed:
    """Nobody has started it."""


@dataclass(frozen=True, slots=True)
class Alive:
    """Its wrapper lives and has not written an ending."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Ended:
    """Its wrapper wrote an ending."""

    claim: Claim
    ending: Ending


@dataclass(frozen=True, slots=True)
class Gone:
    """It was claimed, its wrapper is dead, there is no ending; `leftovers` are processes of it still alive."""

    claim: Claim | None
    leftovers: tuple[int, ...] = ()
    why: str = "its wrapper was killed"


Look = Unclaimed | Alive | Ended | Gone


@dataclass(frozen=True, slots=True)
class Start:
    """Ask for it (again): at worst somebody has and the second request comes to nothing."""


@dataclass(frozen=True, slots=True)
class NoteStarted:
    """Record that it runs."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class NoteEnded:
    """Record how it ended, and first that it began if nobody saw that."""

    claim: Claim
    ending: Ending


@dataclass(frozen=True, slots=True)
class NoteLost:
    """Record that nobody can say how it ended."""

    why: str


@dataclass(frozen=True, slots=True)
class Forbid:
    """Claim it for nobody, so that it can never start."""


@dataclass(frozen=True, slots=True)
class Stop:
    """Tell its wrapper to end the tree."""


@dataclass(frozen=True, slots=True)
class KillLeftovers:
    """Kill what its dead wrapper left behind, then look again."""

    pids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing to do."""


Verdict = Start | NoteStarted | NoteEnded | NoteLost | Forbid | Stop | KillLeftovers | Wait


def decide_run(state: RunState, look: Look, *, intended_here: bool, kill: bool, order: str = "") -> Verdict:
    """Decide what a look means for an open run. `intended_here`: its intent was written in this boot.

    `order` is the digest of what the ledger wants run. After an old ledger was put back, a run of the same name may lie
    there: the same order is adopted, so that nothing runs twice; the end of another order says nothing about this one.
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
                # The claim may have been lost with the power: it may have run.
                return NoteLost("the machine restarted before its start was known")
            return Forbid() if kill else Start()
        case _:
            assert_never(look)
