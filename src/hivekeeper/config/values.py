"""What settings there are, and how durations and sizes are written; known also where no file is ever read."""

import re
from dataclasses import dataclass, field

from hivekeeper.domain.budget import NO_CAP, Cap
from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.price import Price
from hivekeeper.domain.runner import Runner
from hivekeeper.errors import InputError
from hivekeeper.runners import PRESETS
from hivekeeper.runners.prices import PRICES, PRICES_AS_OF

FILE_NAME = "hive.toml"
LONGEST_SHOWN = 60
LONGEST_S = 365 * 86_400.0
LARGEST_BYTES = 1 << 50

MOST_PROCESSES = 1_000_000

# Known to every hive; the others are in its hive.toml.
BUILT_IN_RUNNERS = ("scripted",)

DEFAULT_TOML = f"""\
# How this hive works. Every value here is the default: a line that is removed changes nothing.

[hive]
workers = 4                 # tasks at work at the same time
archive_after = "24h"       # how long a complete convoy stays in sight

[keeper]
heartbeat = "60s"           # how often the keeper records that it is alive
abandoned_after = "300s"    # silence after which another keeper may take over; at least twice the heartbeat
poll = "2s"                 # how often it looks for work when nothing wakes it
preempt = "30s"             # how long to keep what workers have made, when the machine is about to go (SIGTERM)

# What a task may use when its plan does not say; "none" is no limit.
[limits]
timeout = "4h"              # from start to end: "45m", "1h30m", or a number of seconds
silence = "1h"              # time without any output
no_answer = "10m"           # how long an agent waits for its model in silence before that is taken for a usage limit
output = "64MiB"            # all that it prints: "64MB", "2GiB", or a number of bytes
memory = "none"             # of all its processes together
processes = 1000            # alive at the same time
disk = "20GiB"              # in its own directory

# What keeps a worker's processes where they belong.
[sandbox]
level = "best"              # the strongest walls this machine has, or "namespaces", "landlock", "limits"
require = "none"            # refuse to work behind weaker walls than "landlock" or "namespaces"
read = []                   # what workers may read beside the toolchain: ["~/.config/agent"]
write = []                  # what they may write beside their own directory
pool = 2                    # clones of each repository made ready ahead; 0 is none
snapshot_every = "5m"       # how often what a worker has made so far is kept
reclaim_after = "1h"        # when to try again to remove what could not be removed

# How what workers make is verified and lands.
[queue]
parallel = "cores"          # verifications at the same time: "cores" or a number
gate_timeout = "30m"        # of a gate, from start to end
resolver = "none"           # the runner that settles conflicts no rule can: one of [runners]

# What may be spent a day, in all; also in a plan, for a convoy and for a task: budget: {{money: 5, tokens: 2000000}}
[budget]
money = "none"              # dollars
tokens = "none"

# What models cost, in dollars a million tokens, where a program tells tokens and no money. Known without a line here:
# the makers' list prices of {PRICES_AS_OF}. A name stands for every model that begins with it.
# [prices]
# claude-opus = {{input = 5, output = 25, cache_read = 0.5, cache_write = 6.25}}

# Who takes prompts. claude, codex, gemini, goose, pi, opencode, qwen, copilot, aider and mini are known: hive runner ls
# shows which are here. What is said of one is added to what is known of it; any other is a command of yours.
# [runners.claude]
# args = "--model opus"
# [runners.mine]
# command = "my-agent --print"
# prompt = "stdin"

# What a small hive may do without: hive init --agents N writes what suits a hive of N.
[patterns]
queue = true                # what workers make lands one at a time, verified; without, each change is a branch
cleanup = true              # what an ended worker leaves behind is removed
convoys = true              # a complete convoy stays in sight for archive_after; without, it is archived at once
"""


@dataclass(frozen=True, slots=True)
class Patterns:
    """What a small hive may do without; each can be switched off by itself."""

    queue: bool = True
    cleanup: bool = True
    convoys: bool = True


@dataclass(frozen=True, slots=True)
class Settings:
    """What `hive.toml` may change, with the values that hold when it says nothing."""

    workers: int = 4
    archive_after_s: float = 86_400.0
    heartbeat_s: float = 60.0
    abandoned_after_s: float = 300.0
    poll_s: float = 2.0
    limits: Limits = field(default_factory=lambda: Limits(wall_s=14_400.0, silence_s=3600.0))
    level: str | None = None
    require: str | None = None
    read: tuple[str, ...] = ()
    write: tuple[str, ...] = ()
    pool: int = 2
    snapshot_every_s: float = 300.0
    reclaim_after_s: float = 3600.0
    preempt_s: float = 30.0
    parallel: int | None = None
    gate_wall_s: float = 1800.0
    resolver: str | None = None
    runners: dict[str, Runner] = field(default_factory=lambda: dict(PRESETS))
    day: Cap = NO_CAP
    no_answer_s: float | None = 600.0
    prices: dict[str, Price] = field(default_factory=lambda: dict(PRICES))
    patterns: Patterns = field(default_factory=Patterns)

    @property
    def runner_names(self) -> tuple[str, ...]:
        """All that a prompt may be given to."""
        return (*self.runners, *BUILT_IN_RUNNERS)

    def check_runner(self, name: str) -> None:
        """Refuse a runner that this hive does not have."""
        if name not in self.runner_names:
            meant = find_nearest(name, self.runner_names)
            known = f"Did you mean '{meant}'?" if meant else f"It knows {', '.join(self.runner_names)}."
            raise InputError(f"This hive has no runner '{name}'.", advice=f"{known} hive.toml has them: [runners.NAME]")


NUMBER = r"(\d{1,15}(?:\.\d{1,9})?)"
DURATION = re.compile(rf"(?:{NUMBER}d)?(?:{NUMBER}h)?(?:{NUMBER}m)?(?:{NUMBER}s?)?", re.ASCII)
SIZE = re.compile(rf"{NUMBER} ?(?:([KMGT]?)(i?)B)?", re.ASCII | re.IGNORECASE)


def read_duration(value: object) -> float:
    """Read "1h30m", "90s" or a plain number as seconds."""
    seconds: float
    if isinstance(value, str) and value and (match := DURATION.fullmatch(value)):
        days, hours, minutes, rest = (float(part or 0) for part in match.groups())
        seconds = ((days * 24 + hours) * 60 + minutes) * 60 + rest
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value
    else:
        msg = f"must be a duration such as 45m, 90s, 1h30m or a number of seconds, not {show(value)}"
        raise ValueError(msg)
    if not 0 < seconds <= LONGEST_S:  # Written so that NaN fails too.
        msg = f"must be more than 0 and at most 365d, not {show(value)}"
        raise ValueError(msg)
    return float(seconds)


def read_size(value: object) -> int:
    """Read "64MB" (millions), "2GiB" (powers of 1024) or a plain number as bytes."""
    if isinstance(value, str) and (match := SIZE.fullmatch(value)):
        number, unit, binary = match.groups()
        size = int(float(number) * (1024 if binary else 1000) ** " KMGT".index((unit or " ").upper()))
    elif isinstance(value, int) and not isinstance(value, bool):
        size = value
    else:
        msg = f"must be a size such as 64MB, 2GiB or a number of bytes, not {show(value)}"
        raise ValueError(msg)
    if not 0 < size <= LARGEST_BYTES:
        msg = f"must be at least 1 byte and at most 1024TiB, not {show(value)}"
        raise ValueError(msg)
    return size


def read_count(value: object) -> int:
    """Read a number of processes."""
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_PROCESSES:
        msg = f"must be a whole number from 1 to {MOST_PROCESSES:,}, not {show(value)}"
        raise ValueError(msg)
    return value


def show(value: object) -> str:
    """Write a value so that it fits in a sentence and cannot move a terminal's cursor."""
    if isinstance(value, str):
        return repr(value if len(value) <= LONGEST_SHOWN else value[: LONGEST_SHOWN - 3] + "...")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):  # Python refuses to write out a number of thousands of digits.
        return str(value) if abs(value) < 1 << 63 else "that number"
    return {list: "a list", dict: "a mapping", type(None): "nothing"}.get(type(value), "a date or time")
