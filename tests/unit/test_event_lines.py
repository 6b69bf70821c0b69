"""What a person who watches is told of what happens: a line each, with what to type where something waits for them."""

import pytest

from hivekeeper.domain import events as e
from hivekeeper.views.events import NOTABLE, say_event

AT = "2026-01-02T03:04:05.000000Z"
LINES = {
    "a limit": (
        e.HoldPlaced("runner", "goose", "rate-limited", "2026-01-02T04:00:00.000000Z", 1), "429\n too many",
        "goose is rate-limited until 2026-01-02T04:00:00.000000Z: 429 too many",
    ),
    "a sign-in": (
        e.HoldPlaced("runner", "goose", "auth", None, 1), "x" * 200,
        f"goose is not signed in: {'x' * 118} …; type: hive status",
    ),
    "going on": (e.AttemptResumed("c/a", 1), "", "c/a continues"),
    "a hold lifted": (e.HoldLifted("day", "today", "budget"), "raised", "day today continues: raised"),
    "a gate file": (
        e.MergeHeld("c/a", 1), "it changes the protected file check.sh",
        "c/a waits for you: it changes the protected file check.sh; type: hive queue approve c/a",
    ),
    "a red branch": (
        e.RepoStopped("app"), "'main' itself does not pass",
        "the merge queue of app is stopped: 'main' itself does not pass",
    ),
    "green again": (e.RepoRecovered("app"), "", "the merge queue of app continues"),
}  # fmt: skip


@pytest.mark.parametrize("what", LINES)
def test_it_is_told_in_one_line_to_whoever_watches(what: str) -> None:
    body, why, line = LINES[what]
    assert type(body) in NOTABLE
    assert say_event(e.Event(1, body, "keeper", why, AT, AT, 1, "")) == line


def test_no_event_is_told_by_the_name_of_its_kind() -> None:
    for body in (e.RunLost("c/a/1.agent", "agent"), e.TaskCancelRequested("c/a"), e.ConvoyExtended("c")):
        line = say_event(e.Event(1, body, "ann", "", AT, AT, 1, ""))
        assert body.kind not in line
        assert line.startswith(f"{body.kind.partition('.')[0]} {body.subject} ")
