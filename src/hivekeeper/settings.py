"""The settings of a hive, each declared once: its table in hive.toml, its default, and what it means in a sentence.

The file that `hive init` writes, the checks of what a person wrote, and the reference page follow from it. The key in
hive.toml is the field's name without its unit: `poll_s` is `poll`, `output_bytes` is `output`.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from hivekeeper.domain.budget import MICRO, Cap
from hivekeeper.domain.names import find_nearest
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.price import Price
from hivekeeper.domain.runner import Runner
from hivekeeper.errors import InputError
from hivekeeper.runners import PRESETS
from hivekeeper.runners.prices import PRICES

# Known to every hive; the others are in its hive.toml.
BUILT_IN_RUNNERS: Final = ("scripted",)

# The tables of hive.toml, in their order, with what each is for where its keys do not say it.
TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hive": "",
        "keeper": "",
        "limits": 'What a task may use when its plan does not say; "none" is no limit.',
        "sandbox": "What isolates workers from the rest of the machine.",
        "queue": "How changes are verified and landed.",
        "budget": "What may be spent a day, in all. A plan may say it for a convoy or a task: "
        "budget: {money: 5, tokens: 2000000}",
        "patterns": "What a small hive can do without: hive init --agents N writes what suits N agents.",
    }
)


@dataclass(frozen=True, slots=True)
class Said:
    """How a setting is written: `word` stands for None, and a number lies between `least` and `most`."""

    table: str
    sentence: str
    word: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None


def setting(
    table: str,
    sentence: str,
    *,
    default: object,
    word: str = "",
    choices: tuple[str, ...] = (),
    between: tuple[int | None, int | None] = (None, None),
) -> Any:  # noqa: ANN401 - the field's own type
    """Declare a setting."""
    return field(default=default, metadata={"said": Said(table, sentence, word, choices, *between)})


@dataclass(frozen=True, slots=True)
class Settings:
    """What `hive.toml` may change, with the values that hold when it says nothing."""

    workers: int = setting("hive", "tasks that run at the same time", default=4, between=(1, 1000))
    archive_after_s: float = setting("hive", "how long a completed convoy stays visible", default=86_400.0)

    heartbeat_s: float = setting("keeper", "how often the keeper records that it is alive", default=60.0)
    abandoned_after_s: float = setting(
        "keeper", "silence after which another keeper may take over; at least twice the heartbeat", default=300.0
    )
    poll_s: float = setting("keeper", "how often it looks for work when nothing wakes it", default=2.0)
    preempt_s: float = setting(
        "keeper", "time to save workers' work when the machine is about to go (SIGTERM)", default=30.0
    )

    timeout_s: float | None = setting(
        "limits", 'from start to end: "45m", "1h30m", or a number of seconds', default=14_400.0, word="none"
    )
    silence_s: float | None = setting("limits", "time without any output", default=3600.0, word="none")
    no_answer_s: float | None = setting(
        "limits", "silence of an agent's model after which it counts as a usage limit", default=600.0, word="none"
    )
    output_bytes: int | None = setting(
        "limits",
        'everything it prints: "64MB", "2GiB", or a number of bytes',
        default=Limits().output_bytes,
        word="none",
    )
    memory_bytes: int | None = setting("limits", "of all its processes together", default=None, word="none")
    processes: int | None = setting(
        "limits", "running at the same time", default=1000, word="none", between=(1, 1_000_000)
    )
    disk_bytes: int | None = setting("limits", "in its own directory", default=Limits().disk_bytes, word="none")

    level: str | None = setting(
        "sandbox",
        'the strongest isolation this machine has, or "namespaces", "landlock", "limits"',
        default=None,
        word="best",
        choices=("namespaces", "landlock", "limits"),
    )
    require: str | None = setting(
        "sandbox",
        'refuse to work with weaker isolation than "landlock" or "namespaces"',
        default=None,
        word="none",
        choices=("landlock", "namespaces"),
    )
    read: tuple[str, ...] = setting(
        "sandbox", 'what workers may read besides the toolchain: ["~/.config/agent"]', default=()
    )
    write: tuple[str, ...] = setting("sandbox", "what they may write besides their own directory", default=())
    snapshot_every_s: float = setting("sandbox", "how often the work of a running worker is saved", default=300.0)
    reclaim_after_s: float = setting("sandbox", "when to try again to remove what could not be removed", default=3600.0)

    parallel: int | None = setting(
        "queue",
        'verifications at the same time: "cores" or a number',
        default=None,
        word="cores",
        between=(1, 1_000_000),
    )
    gate_timeout_s: float = setting("queue", "of a gate, from start to end", default=1800.0)
    resolver: str | None = setting(
        "queue", "the runner that settles conflicts no rule can: one of [runners]", default=None, word="none"
    )

    money: float | None = setting("budget", "dollars", default=None, word="none")
    tokens: int | None = setting("budget", "sent and received", default=None, word="none", between=(1, 10**15))

    queue: bool = setting(
        "patterns", "changes land one at a time, each verified; without, each is a branch", default=True
    )
    cleanup: bool = setting("patterns", "what finished workers leave behind is removed", default=True)
    convoys: bool = setting(
        "patterns", "a completed convoy stays visible for archive_after; without, it is archived at once", default=True
    )

    runners: dict[str, Runner] = field(default_factory=lambda: dict(PRESETS))
    prices: dict[str, Price] = field(default_factory=lambda: dict(PRICES))

    @property
    def limits(self) -> Limits:
        """What a task may use when its plan does not say."""
        sizes = (self.output_bytes, self.memory_bytes, self.processes, self.disk_bytes)
        return Limits(self.timeout_s, self.silence_s, *sizes)

    @property
    def day(self) -> Cap:
        """What may be spent a day."""
        return Cap(self.tokens, None if self.money is None else round(self.money * MICRO))

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


def list_settings() -> list[tuple[Field[Any], Said]]:
    """List what is declared, in the order of hive.toml."""
    found = [(each, each.metadata["said"]) for each in fields(Settings) if "said" in each.metadata]
    return sorted(found, key=lambda pair: list(TABLES).index(pair[1].table))


def key_of(each: Field[Any]) -> str:
    """Tell how a setting is called in hive.toml."""
    return each.name.removesuffix("_s").removesuffix("_bytes")
