"""The settings of a hive, each declared once: its table in hive.toml, its default, and what it means in a sentence.

The file that `hive init` writes, the checks of what a person wrote, and the reference page follow from it. The key in
hive.toml is the field's name without its unit: `poll_s` is `poll`, `output_bytes` is `output`.
"""

from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final

from hivekeeper.domain.budget import MICRO, Cap
from hivekeeper.domain.names import advise
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.price import Price
from hivekeeper.domain.protocol import PROTOCOL, MessageType
from hivekeeper.domain.runner import Runner
from hivekeeper.errors import InputError
from hivekeeper.runners import PRESETS
from hivekeeper.runners.prices import PRICES

# Known to every hive; the others are in its hive.toml.
BUILT_IN_RUNNERS: Final = ("scripted",)

# The tables of hive.toml, in their order, each with what it is for if its keys do not show it.
TABLES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "hive": "",
        "keeper": "",
        "limits": 'What a task may use when its plan does not say; "none" is no limit.',
        "sandbox": "What isolates workers from the rest of the machine.",
        "queue": "How changes are verified and landed.",
        "mail": "What workers may write to each other, to the hive and to you. Types of your own: [mail.types.NAME]",
        "budget": "What may be spent in a day. In a plan, for a convoy or a task: budget: {money: 5, tokens: 2000000}",
        "patterns": "What a small hive can do without: hive init --agents N writes what suits N agents.",
    }
)


@dataclass(frozen=True, slots=True)
class Setting:
    """How a setting is written: `word` stands for None, and a number lies between `least` and `most`."""

    table: str
    sentence: str
    word: str = ""
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None


def setting(table: str, default: object, sentence: str, **how: Any) -> Any:  # noqa: ANN401 - the field's own type
    """Declare a setting."""
    return field(default=default, metadata={"setting": Setting(table, sentence, **how)})


@dataclass(frozen=True, slots=True)
class Settings:
    """What `hive.toml` may set, with the defaults."""

    workers: int = setting("hive", 4, "tasks that run at the same time", least=1, most=1000)
    archive_after_s: float = setting("hive", 86_400.0, "how long a completed convoy stays visible")

    heartbeat_s: float = setting("keeper", 60.0, "how often the keeper records that it is alive")
    abandoned_after_s: float = setting(
        "keeper", 300.0, "silence after which another keeper may take over; at least twice the heartbeat"
    )
    poll_s: float = setting("keeper", 2.0, "how often it looks for work when nothing wakes it")
    preempt_s: float = setting("keeper", 30.0, "time to save the workers' work after SIGTERM")

    timeout_s: float | None = setting(
        "limits", 14_400.0, 'run time: "45m", "1h30m", or a number of seconds', word="none"
    )
    silence_s: float | None = setting("limits", 3600.0, "time without any output", word="none")
    no_answer_s: float | None = setting(
        "limits", 600.0, "silence of an agent's model after which it counts as a usage limit", word="none"
    )
    output_bytes: int | None = setting(
        "limits", Limits().output_bytes, 'total output: "64MB", "2GiB", or a number of bytes', word="none"
    )
    memory_bytes: int | None = setting("limits", None, "memory of all its processes together", word="none")
    processes: int | None = setting("limits", 1000, "processes at the same time", word="none", least=1, most=1_000_000)
    disk_bytes: int | None = setting("limits", Limits().disk_bytes, "disk space of its sandbox", word="none")

    level: str | None = setting(
        "sandbox",
        None,
        'the strongest isolation this machine has, or "namespaces", "landlock", "limits"',
        word="best",
        choices=("namespaces", "landlock", "limits"),
    )
    require: str | None = setting(
        "sandbox",
        None,
        'refuse to work with weaker isolation than "landlock" or "namespaces"',
        word="none",
        choices=("landlock", "namespaces"),
    )
    read: tuple[str, ...] = setting("sandbox", (), 'what workers may read besides the toolchain: ["~/.config/agent"]')
    write: tuple[str, ...] = setting("sandbox", (), "what they may write besides their own sandbox")
    snapshot_every_s: float = setting("sandbox", 300.0, "how often a running worker's work is saved")
    reclaim_after_s: float = setting("sandbox", 3600.0, "when to retry removing what could not be removed")

    parallel: int | None = setting(
        "queue", None, 'verifications at the same time: "cores" or a number', word="cores", least=1, most=1_000_000
    )
    gate_timeout_s: float = setting("queue", 1800.0, "run time of a gate")
    resolver: str | None = setting(
        "queue", None, "the runner that resolves conflicts which no rule can: one of [runners]", word="none"
    )

    hourly: int = setting("mail", 60, "conversations that one may start with another in an hour", least=1, most=10**9)
    max_hops: int = setting("mail", 12, "messages of one conversation, each a reply to the last", least=1, most=1000)
    reply_within_s: float = setting("mail", 1800.0, "when a request without a reply is reported to you")

    money: float | None = setting("budget", None, "dollars", word="none")
    tokens: int | None = setting("budget", None, "tokens sent and received", word="none", least=1, most=10**15)

    queue: bool = setting(
        "patterns", default=True, sentence="changes land one at a time, each verified; without, each is a branch"
    )
    cleanup: bool = setting("patterns", default=True, sentence="what finished workers leave behind is removed")
    convoys: bool = setting(
        "patterns",
        default=True,
        sentence="a completed convoy stays visible for archive_after; without, it is archived at once",
    )

    mail: bool = setting(
        "patterns",
        default=True,
        sentence="workers have a mailbox: they can write to each other, to the hive and to you",
    )
    identity: bool = setting(
        "patterns",
        default=True,
        sentence="each worker with a prompt is a session of an agent that has a record, files and what it has learnt",
    )
    repository: bool = setting(
        "patterns",
        default=False,
        sentence="the log, the mail and the dispatch ledgers are also files in a git repository, .hive/archive",
    )

    runners: dict[str, Runner] = field(default_factory=lambda: dict(PRESETS))
    prices: dict[str, Price] = field(default_factory=lambda: dict(PRICES))
    protocol: dict[str, MessageType] = field(default_factory=lambda: dict(PROTOCOL))

    @property
    def limits(self) -> Limits:
        """The limits of a task whose plan sets none."""
        sizes = (self.output_bytes, self.memory_bytes, self.processes, self.disk_bytes)
        return Limits(self.timeout_s, self.silence_s, *sizes)

    @property
    def day(self) -> Cap:
        """What may be spent in a day."""
        return Cap(self.tokens, None if self.money is None else round(self.money * MICRO))

    @property
    def runner_names(self) -> tuple[str, ...]:
        """Every runner that a prompt may name."""
        return (*self.runners, *BUILT_IN_RUNNERS)

    def check_runner(self, name: str) -> None:
        """Refuse a runner that this hive does not have."""
        if name not in self.runner_names:
            known = advise(name, self.runner_names, f"It knows {', '.join(self.runner_names)}.")
            raise InputError(f"This hive has no runner '{name}'.", advice=f"{known} hive.toml has them: [runners.NAME]")


def list_settings() -> list[tuple[Field[Any], Setting]]:
    """List the settings, in the order of hive.toml."""
    return [(each, each.metadata["setting"]) for each in fields(Settings) if each.metadata]


def key_of(each: Field[Any]) -> str:
    """Return what a setting is called in hive.toml."""
    return each.name.removesuffix("_s").removesuffix("_bytes")
