"""A `hive.toml` for a number of agents: what such a hive needs, and what it can do without."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeVar

from hivekeeper.config.template import COLUMN, DEFAULT_TOML
from hivekeeper.config.values import FILE_NAME

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Profile:
    """The text of the file, and what it means in a sentence."""

    toml: str
    sentence: str


# Each from a number of agents on: what a hive of that size is, and the values it has, with the reason for each.
MEANINGS = {
    1: "1–3 agents: you see what each does, so only what prevents leaks is on",
    3: "3–10 agents: branches meet, so changes are queued, and sandboxes are removed",
    10: "10–20 agents: you cannot follow all of them, so everything is on and the limits are tighter",
    20: "20 and more agents: without every pattern work would be lost, so everything is on and the limits are tight",
}
VALUES = {
    "timeout": {
        1: ('"4h"', "one that hangs is ended while you look elsewhere"),
        3: ('"4h"', "you cannot watch all of them: one that hangs is ended"),
        10: ('"2h"', "they recover without you: one that hangs is ended sooner"),
    },
    "silence": {
        1: ('"1h"', "one that is stuck is ended while you look elsewhere"),
        3: ('"1h"', "you cannot watch all of them: one that is stuck is ended"),
        10: ('"30m"', "they recover without you: one that is stuck is ended sooner"),
        20: ('"15m"', "every stuck worker keeps others waiting"),
    },
    "processes": {
        1: ("1000", "few agents: each may use much"),
        10: ("500", "they share one machine"),
        20: ("200", "they share one machine"),
    },
    "disk": {
        1: ('"20GiB"', "few agents: each may use much"),
        10: ('"10GiB"', "they share one machine"),
        20: ('"5GiB"', "they share one machine"),
    },
    "queue": {
        1: ("false", "off: two writers rarely meet; from 3 on it pays"),
        3: ("true", "on: from 3 writers on, branches meet"),
        10: ("true", "on: essential from 10 writers on"),
        20: ("true", "on: essential, or merging is chaos"),
    },
    "cleanup": {
        1: ("true", "on: it prevents leaks from the first day"),
        3: ("true", "on: what several leave behind adds up"),
        10: ("true", "on: a few idle ones of ten are much of the machine"),
        20: ("true", "on: essential, or the machine fills up"),
    },
    "identity": {
        1: ("true", "on: whoever continues knows what was tried; it costs nothing"),
        3: ("true", "on: sessions end, and what they learnt stays"),
        10: ("true", "on: essential where workers come and go"),
        20: ("true", "on: essential, or every session starts from nothing"),
    },
    "mail": {
        1: ("false", "off: two agents see each other's work in the repository; on, they can ask you for help"),
        3: ("true", "on: it pays where agents must coordinate, and costs nothing where they need not"),
        10: ("true", "on: agents ask each other and you, and nothing that was said is lost"),
        20: ("true", "on: essential, or agents work against each other"),
    },
    "convoys": {
        1: ("false", "off: a batch this small is seen at a glance"),
        3: ("false", "off: it pays from 10 agents on, or when work spans days or repositories"),
        10: ("true", "on: otherwise you cannot see how far the work is"),
        20: ("true", "on: essential, or you lose sight of work"),
    },
}


def make_profile(agents: int) -> Profile:
    """Write the settings for a number of agents."""
    meaning = f"{_choose(MEANINGS, agents)}."
    values = {"workers": (str(agents), "tasks that run at the same time")}
    values |= {key: _choose(bands, agents) for key, bands in VALUES.items()}
    _, *rest = DEFAULT_TOML.splitlines()
    text = [f"# A hive of {agents}, made for {meaning}"]
    for line in rest:
        key = line.partition(" = ")[0]
        value, why = values.get(key, ("", ""))
        text.append(f"{f'{key} = {value}':<{COLUMN}}# {why}" if value else line)
    return Profile("\n".join(text) + "\n", f"{FILE_NAME} is for {meaning}")


def _choose(bands: Mapping[int, T], agents: int) -> T:
    return bands[max(least for least in bands if least <= agents)]
