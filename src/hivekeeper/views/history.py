"""The past: the hive as it was at a moment, what differs between two, and who reads the log."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hivekeeper.domain.names import find_nearest
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_head
from hivekeeper.store.replay import add_convoy, find_seq_at, state_at
from hivekeeper.views import convoys
from hivekeeper.views.status import show_status


def get_seq(connection: Connection, moment: int | str, *, now: str, from_nothing: bool = False) -> int:
    """Get the event after which a moment is: its number, or the last one written down by a time.

    Before the first event is 0 where `from_nothing` allows it, and refused elsewhere.
    """
    head = read_head(connection).seq
    if head == 0:
        raise InputError("Nothing has happened in this hive yet.", advice="Type: hive run PLAN.yaml")
    if isinstance(moment, int):
        if not (0 if from_nothing else 1) <= moment <= head:
            raise InputError(f"There is no event {moment}.", advice=f"Type a number from 1 to {head}.")
        return moment
    if moment > now:
        raise InputError(f"{moment} has not come yet.", advice=f"It is {now}.")
    seq = find_seq_at(connection, moment)
    if seq == 0 and not from_nothing:
        first = queries.find_recorded_at(connection, 1)
        raise InputError(f"Nothing had happened by {moment}.", advice=f"The first event was written down at {first}.")
    return seq


def check_subject(connection: Connection, subject: str) -> None:
    """Refuse a subject that no event is about, and suggest the nearest that is known."""
    head = read_head(connection).seq
    if queries.list_events_about(connection, subject, after=0, until=head, limit=1):
        return
    convoy_names = [convoy.name for convoy in queries.list_convoys(connection, archived=True)]
    keys = [task.key for name in convoy_names for task in queries.list_tasks_of_convoy(connection, name)]
    hint = find_nearest(subject, [*convoy_names, *keys, *(repo.name for repo in queries.list_repos(connection))])
    hint = hint or next((key for key in keys if key.partition("/")[2] == subject), None)
    advice = f"Did you mean '{hint}'?" if hint else "A subject is a convoy, CONVOY/TASK, a run or a repository."
    raise InputError(f"Nothing has happened to '{subject}'.", advice=advice)


def find_last(connection: Connection, subject: str, count: int) -> int:
    """Find the event after which the last so many about a subject come."""
    head = read_head(connection).seq
    events = queries.list_events_about(connection, subject, after=0, until=head, limit=-1)
    seqs = [0, *(event.seq for event in events)]
    return seqs[max(0, len(seqs) - 1 - count)]


def show_status_at(connection: Connection, seq: int) -> dict[str, Any]:
    """Show the status as it was after an event; a keeper was there if the lease was held."""
    with state_at(connection, seq) as then:
        lease = queries.find_lease(then)
        kept = lease is not None and lease.released_at is None
        return {
            "as_of": show_moment(connection, seq),
            **show_status(then, keeper_is_alive=kept, now=queries.find_recorded_at(connection, seq) or ""),
        }


def show_convoy_at(connection: Connection, seq: int, name: str) -> dict[str, Any]:
    """Show a convoy's card as it was after an event, archived or not."""
    with state_at(connection, seq) as then:
        add_convoy(connection, then, name, seq)
        found = queries.find_convoy(then, name)
        if found is None:
            known = convoys.get_convoy(connection, name)
            what = f"There was no convoy '{name}' at event {seq}."
            raise InputError(what, advice=f"It was submitted at {known.submitted_at}.")
        return {"as_of": show_moment(connection, seq), **convoys.show_convoy(then, found)}


def show_moment(connection: Connection, seq: int) -> dict[str, Any]:
    """Show which event a moment is after, and when that was written down."""
    return {"seq": seq, "recorded_at": queries.find_recorded_at(connection, seq)}


def show_difference(connection: Connection, first: int, second: int) -> dict[str, Any]:
    """Show what differs between two moments, the earlier one first; convoys archived before both are left out."""
    earlier, later = sorted((first, second))
    with state_at(connection, earlier) as before, _state_with_archived(connection, earlier, later) as after:
        differences = {
            "convoys": _differ("convoy", _tell_convoys(before), _tell_convoys(after)),
            "tasks": _differ("task", _tell_tasks(before), _tell_tasks(after)),
            "repos": _differ("repo", _tell_repos(before), _tell_repos(after)),
        }
    moments = {"from": show_moment(connection, earlier), "to": show_moment(connection, later)}
    return {**moments, "events": later - earlier, **differences}


@contextmanager
def _state_with_archived(connection: Connection, earlier: int, later: int) -> Iterator[Connection]:
    with state_at(connection, later) as state:
        for name in queries.list_convoys_archived_between(connection, earlier, later):
            add_convoy(connection, state, name, later)
        yield state


Facts = Mapping[str, Mapping[str, Any]]


def _tell_convoys(state: Connection) -> Facts:
    told = {}
    for row in convoys.list_convoys(state, archived=True):
        told[row["convoy"]] = {"state": row["state"], "complete": row["complete"], "tasks": row["tasks"]}
    return told


def _tell_tasks(state: Connection) -> Facts:
    return {
        task.key: {"state": task.state.value, "attempts": task.attempts, "commit": task.commit_id}
        for convoy in queries.list_convoys(state, archived=True)
        for task in queries.list_tasks_of_convoy(state, convoy.name)
    }


def _tell_repos(state: Connection) -> Facts:
    return {
        repo.name: {"state": repo.state.value, "integration": repo.integration, "published": repo.published}
        for repo in queries.list_repos(state)
    }


def _differ(noun: str, before: Facts, after: Facts) -> list[dict[str, Any]]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        {noun: name, "from": before.get(name), "to": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    ]


def list_cursors(connection: Connection) -> list[dict[str, Any]]:
    """List who reads the log, and how many events each has yet to read."""
    head = read_head(connection).seq
    return [
        {"cursor": row.name, "seq": row.seq, "behind": head - row.seq, "moved_at": row.moved_at}
        for row in queries.list_cursors(connection)
    ]
