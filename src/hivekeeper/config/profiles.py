"""A `hive.toml` for a number of agents: what such a hive needs, and what it may do without."""

from dataclasses import dataclass

from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.config.values import FILE_NAME

COLUMN = 28


@dataclass(frozen=True, slots=True)
class Profile:
    """The text of the file, and what it means in a sentence."""

    toml: str
    sentence: str


@dataclass(frozen=True, slots=True)
class _Band:
    """What holds from this many agents on; `lines` are values with the reason for each."""

    least: int
    name: str
    meaning: str
    lines: dict[str, tuple[str, str]]


BANDS = (
    _Band(
        1,
        "1–3",
        "you see what each does, so only what prevents leaks is on",
        {
            "timeout": ('"4h"', "one that hangs is ended while you look elsewhere"),
            "silence": ('"1h"', "one that is stuck is ended while you look elsewhere"),
            "processes": ("1000", "few agents: each may use much"),
            "disk": ('"20GiB"', "few agents: each may use much"),
            "queue": ("false", "off: two writers rarely meet; from 3 on it pays"),
            "cleanup": ("true", "on: it prevents leaks from the first day"),
            "convoys": ("false", "off: a batch this small is seen at a glance"),
        },
    ),
    _Band(
        3,
        "3–10",
        "branches meet, so what they made is queued, and what they leave is removed",
        {
            "timeout": ('"4h"', "nobody watches all of them: one that hangs is ended"),
            "silence": ('"1h"', "nobody watches all of them: one that is stuck is ended"),
            "processes": ("1000", "few agents: each may use much"),
            "disk": ('"20GiB"', "few agents: each may use much"),
            "queue": ("true", "on: from 3 writers on, branches meet"),
            "cleanup": ("true", "on: what several leave behind adds up"),
            "convoys": ("false", "off: it pays from 10 agents on, or when work spans days or repositories"),
        },
    ),
    _Band(
        10,
        "10–20",
        "nobody can follow all of them, so everything is on and the limits are tighter",
        {
            "timeout": ('"2h"', "they recover without you: one that hangs is ended sooner"),
            "silence": ('"30m"', "they recover without you: one that is stuck is ended sooner"),
            "processes": ("500", "they share one machine"),
            "disk": ('"10GiB"', "they share one machine"),
            "queue": ("true", "on: essential from 10 writers on"),
            "cleanup": ("true", "on: a few idle ones of ten are much of the machine"),
            "convoys": ("true", "on: otherwise nobody knows how far the work is"),
        },
    ),
    _Band(
        20,
        "20 and more",
        "without every pattern work would be lost, so everything is on and the limits are tight",
        {
            "timeout": ('"2h"', "they recover without you: one that hangs is ended sooner"),
            "silence": ('"15m"', "every stuck worker keeps others waiting"),
            "processes": ("200", "they share one machine"),
            "disk": ('"5GiB"', "they share one machine"),
            "queue": ("true", "on: essential, or merging is chaos"),
            "cleanup": ("true", "on: essential, or the machine fills up"),
            "convoys": ("true", "on: essential, or work is lost from sight"),
        },
    ),
)


def make_profile(agents: int) -> Profile:
    """Write the settings for so many agents; where two bands meet, the one that begins there holds."""
    band = next(band for band in reversed(BANDS) if band.least <= agents)
    meaning = f"{band.name} agents: {band.meaning}."
    lines = {"workers": (str(agents), "tasks at work at the same time"), **band.lines}
    _, *rest = DEFAULT_TOML.splitlines()
    text = [f"# A hive of {agents}, made for {meaning}"]
    for line in rest:
        key = line.partition(" = ")[0]
        value, why = lines.get(key, ("", ""))
        text.append(f"{f'{key} = {value}':<{COLUMN}}# {why}" if value else line)
    return Profile("\n".join(text) + "\n", f"{FILE_NAME} is for {meaning}")
