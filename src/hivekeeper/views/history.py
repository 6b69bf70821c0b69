"""The past: the hive at a moment, what changed between two, and the readers of the log."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.names import advise
from hivekeeper.domain.rows import TaskRow
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import read_head
from hivekeeper.store.replay import add_convoy, find_seq_at, state_at
from hivekeeper.views import convoys
from hivekeeper.views.rows import pick
from hivekeeper.views.status import show_status


def get_seq(connection: Connection, moment: int | str, *, now: str, from_nothing: bool = False) -> int:
    """Get the event that a moment is after: its number, or the last one recorded by a time.

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
        raise InputError(f"{moment} is in the future.", advice=f"It is {now}.")
    seq = find_seq_at(connection, moment)
    if seq == 0 and not from_nothing:
        first = queries.find_recorded_at(connection, 1)
        raise InputError(f"Nothing had happened by {moment}.", advice=f"The first event was recorded at {first}.")
    return seq


def check_subject(connection: Connection, subject: str) -> None:
    """Refuse a subject that no event is about, and suggest the nearest that is known."""
    head = read_head(connection).seq
    if queries.list_events_about(connection, subject, after=0, until=head, limit=1):
        return
    convoy_names = [convoy.name for convoy in queries.list_convoys(connection, archived=True)]
    keys = [task.key for name in convoy_names for task in queries.list_tasks_of_convoy(connection, name)]
    names = [*convoy_names, *keys, *(repo.name for repo in queries.list_repos(connection))]
    same_id = next((key for key in keys if key.partition("/")[2] == subject), None)
    known = f"Did you mean '{same_id}'?" if same_id else "A subject is a convoy, CONVOY/TASK, a run or a repository."
    raise InputError(f"No event is about '{subject}'.", advice=advise(subject, names, known))


def find_last(connection: Connection, subject: str, count: int) -> int:
    """Find the event that the last `count` events about a subject come after."""
    head = read_head(connection).seq
    events = queries.list_events_about(connection, subject, after=0, until=head, limit=-1)
    seqs = [0, *(event.seq for event in events)]
    return seqs[max(0, len(seqs) - 1 - count)]


def show_status_at(connection: Connection, seq: int) -> dict[str, Any]:
    """Show the status as it was after an event; a keeper was there if the lease was held."""
    with state_at(connection, seq) as then:
        lease = queries.find_lease(then)
        keeper = KeeperState.ACTIVE if lease is not None and lease.released_at is None else KeeperState.NONE
        as_of = show_moment(connection, seq)
        return {"as_of": as_of, **show_status(then, keeper, now=as_of["recorded_at"] or "")}


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
    """Show which event a moment is after, and when that was recorded."""
    return {"seq": seq, "recorded_at": queries.find_recorded_at(connection, seq)}


def show_difference(connection: Connection, first: int, second: int) -> dict[str, Any]:
    """Show what changed between two moments, from the earlier; convoys archived before both are left out."""
    earlier, later = sorted((first, second))
    with state_at(connection, earlier) as before, _state_with_archived(connection, earlier, later) as after:
        differences = {
            f"{noun}s": _compare(noun, read(before), read(after))
            for noun, read in (("convoy", _read_convoys), ("task", _read_tasks), ("repo", _read_repos))
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


def _read_convoys(state: Connection) -> Facts:
    rows = convoys.list_convoys(state, archived=True)
    return {row["convoy"]: {name: row[name] for name in ("state", "complete", "tasks")} for row in rows}


def _read_tasks(state: Connection) -> Facts:
    rows = queries.list_rows(state, TaskRow, "convoy, position")
    return {task.key: pick(task, "state", "attempts", commit="commit_id") for task in rows}


def _read_repos(state: Connection) -> Facts:
    return {repo.name: pick(repo, "state", "integration", "published") for repo in queries.list_repos(state)}


def _compare(noun: str, before: Facts, after: Facts) -> list[dict[str, Any]]:
    names = [*before, *(name for name in after if name not in before)]
    return [
        {noun: name, "from": before.get(name), "to": after.get(name)}
        for name in names
        if before.get(name) != after.get(name)
    ]


def list_cursors(connection: Connection) -> list[dict[str, Any]]:
    """List the readers of the log, each with how many events it has yet to read."""
    head = read_head(connection).seq
    return [
        {**pick(row, "seq", "moved_at", cursor="name"), "behind": head - row.seq}
        for row in queries.list_cursors(connection)
    ]
