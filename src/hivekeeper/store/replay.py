"""The past from the log: the same `project` and `apply_changes` as the live tables, into tables in memory.

`rebuilt` replays everything, which takes as long as the log is. `state_at` begins at the last checkpoint and leaves
out what was archived by then: a day of a year-old hive is as quick to see as a day of a new one.
"""
# ruff: noqa: S608 - table and column names come from our own code alone; every value is a bound parameter

import json
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from hivekeeper.domain.events import Event, encode_json
from hivekeeper.domain.schema import TABLES, Change, Insert, list_tables, project
from hivekeeper.domain.states import OPEN_RUNS, is_in
from hivekeeper.errors import DamagedLedgerError, IllegalTransitionError
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import GENESIS, apply_changes, read_events, read_head
from hivekeeper.store.sqlite import StatementError, in_memory

PAGE = 1000
MAX_DIFFERENCES = 20

PROJECTED_TABLES = tuple(table.name for table in list_tables() if table.is_projected)
_COLUMNS = {name: TABLES[name].columns for name in PROJECTED_TABLES}
_KEY_WIDTHS = {name: len(TABLES[name].key) for name in PROJECTED_TABLES}
# In tables of convoys the first column names one, or what is beneath it: `convoy/task`, `convoy/task.1.agent`.
_OF_CONVOYS = tuple(name for name in PROJECTED_TABLES if TABLES[name].of_convoy)
_OF_THE_HIVE = tuple(name for name in PROJECTED_TABLES if not TABLES[name].of_convoy)
_HIVE_RUNS = ("_gates", "_repos")
_HIVE_MAIL = "_hive"  # messages that are about no task
# What may come of reading a state that something else wrote, or that was spoilt.
_UNREADABLE = (StatementError, ValueError, TypeError, KeyError, OverflowError, RecursionError, zlib.error)


def _say_nothing(_seq: int) -> None:
    pass


@contextmanager
def rebuilt(
    connection: Connection, *, until: int | None = None, say: Callable[[int], None] = _say_nothing
) -> Iterator[Connection]:
    """Replay the whole log, or up to an event, into fresh tables; `say` hears how far it is.

    Every query and view works on them. Heartbeats are observations and not in the log, so there is none.
    """
    with in_memory() as target:
        _set_head(connection, target, 0)
        replay_on(connection, target, read_head(connection).seq if until is None else until, say=say)
        yield target


def replay_on(
    connection: Connection, target: Connection, until: int, *, say: Callable[[int], None] = _say_nothing
) -> None:
    """Bring what was rebuilt up to an event to a later one."""
    seq = read_head(target).seq
    while seq < until:
        seq = _play_page(connection, target, seq, until)
        say(seq)
    _set_head(connection, target, seq)


def _play_page(
    source: Connection,
    target: Connection,
    after: int,
    until: int,
    choose: Callable[[Event], Sequence[Change]] = project,
) -> int:
    """Apply the next events, or what is chosen of them; tell the last one's number."""
    seq = after
    try:
        for event in read_events(source, after, min(PAGE, until - after)):
            apply_changes(target, choose(event))
            seq = event.seq
    except (IllegalTransitionError, KeyError, TypeError, ValueError) as error:
        raise _damaged(f"Event {seq + 1} cannot be replayed: {error}.") from error
    if seq == after:
        raise _damaged(f"Event {seq + 1} is missing.")
    return seq


def _set_head(source: Connection, target: Connection, seq: int) -> None:
    rows = source.rows("SELECT hash, epoch FROM event WHERE seq = ?", (seq,)) or [(GENESIS, 0)]
    sql = """INSERT INTO head (id, seq, hash, epoch, hive) VALUES (1, ?, ?, ?, ?)
    ON CONFLICT (id) DO UPDATE SET seq = excluded.seq, hash = excluded.hash, epoch = excluded.epoch"""
    target.run(sql, (seq, *rows[0], read_head(source).hive))


def _damaged(what: str) -> DamagedLedgerError:
    return DamagedLedgerError(what, advice="Restore the last good copy of the .hive folder.")


@contextmanager
def state_at(connection: Connection, seq: int) -> Iterator[Connection]:
    """Show the hive as it was after an event: lease, repositories, open runs on them, convoys not archived by then."""
    with in_memory() as target:
        at = _restore(connection, target, seq)
        known = {*_HIVE_RUNS, _HIVE_MAIL, *(convoy.name for convoy in queries.list_convoys(target))}

        def choose(event: Event) -> list[Change]:
            # What is not known was archived when the checkpoint was saved; a sandbox of it may be removed after that.
            changes = project(event)
            known.update(
                _owner(change) for change in changes if isinstance(change, Insert) and change.table == "convoy"
            )
            return [change for change in changes if change.table in _OF_THE_HIVE or _owner(change) in known]

        while at < seq:
            at = _play_page(connection, target, at, seq, choose)
        _forget_archived(target)
        _set_head(connection, target, seq)
        yield target


def add_convoy(connection: Connection, target: Connection, convoy: str, seq: int) -> None:
    """Add one archived convoy to the state after an event, from the events about it alone."""
    if queries.find_convoy(target, convoy) is None:
        for event in queries.list_events_about(connection, convoy, after=0, until=seq, limit=-1):
            # A repository may be called like the convoy, and is there already.
            apply_changes(target, [change for change in project(event) if change.table in _OF_CONVOYS])


def encode_state(connection: Connection) -> str:
    """Write down what `state_at` needs of this moment."""
    convoys = [convoy.name for convoy in queries.list_convoys(connection)]
    rows = {table: connection.rows(_select(table)) for table in _OF_THE_HIVE}
    for table in _OF_CONVOYS:
        select = f"{_select(table)} WHERE {_belongs(table)}"
        rows[table] = [row for convoy in convoys for row in connection.rows(select, _bounds(convoy))]
    for runs in _HIVE_RUNS:
        rows["run"] += connection.rows(f"{_select('run')} WHERE {_belongs('run')} AND {_IS_OPEN}", _bounds(runs))
    rows["mail"] += connection.rows(f"{_select('mail')} WHERE {_belongs('mail')}", _bounds(_HIVE_MAIL))
    # With the columns' names: whoever reads it may have put them in another order.
    text = encode_json({table: [_COLUMNS[table], *rows[table]] for table in PROJECTED_TABLES})
    return b64encode(zlib.compress(text.encode())).decode()


def is_checkpoint_right(connection: Connection, again: Connection, seq: int) -> bool:
    """Tell whether the checkpoint at an event is what a replay up to that event says."""
    found = queries.find_checkpoint(connection, seq)
    if found is None or not found[0] == read_head(again).seq == seq:
        return False
    said = _list_rows(encode_state(again))
    try:
        return _list_rows(found[1]) == said
    except _UNREADABLE:
        return False


def _restore(connection: Connection, target: Connection, seq: int) -> int:
    """Fill the tables from the last checkpoint that can be read, and tell its event; 0 when there is none.

    One that cannot be read is a cache that is lost, and no damage: the log has everything, only further away.
    """
    while (found := queries.find_checkpoint(connection, seq)) is not None:
        seq, data = found
        target.run("SAVEPOINT restoring")
        try:
            for table, (names, rows) in _decode_state(data).items():
                insert = f"INSERT INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
                for row in rows:
                    target.run(insert, row)
        except _UNREADABLE:
            target.run("ROLLBACK TO restoring")
            seq -= 1
        else:
            return seq
    return 0


def _decode_state(data: str) -> dict[str, tuple[list[str], list[Any]]]:
    tables, found = json.loads(zlib.decompress(b64decode(data, validate=True))), {}
    for table in PROJECTED_TABLES:
        names, *rows = tables[table]
        if set(names) != set(_COLUMNS[table]):
            raise ValueError(f"{table} has other columns")
        found[table] = names, rows
    return found


def _list_rows(data: str) -> list[str]:
    """List every row of a state by the names of its columns, so that neither their order counts nor that of rows."""
    tables = _decode_state(data).items()
    return sorted(f"{table} {sorted(zip(names, row, strict=True))}" for table, (names, rows) in tables for row in rows)


def _forget_archived(target: Connection) -> None:
    for convoy in queries.list_convoys(target, archived=True):
        if convoy.archived_at is not None:
            for table in reversed(_OF_CONVOYS):
                target.run(f"DELETE FROM {table} WHERE {_belongs(table)}", _bounds(convoy.name))
    for runs in _HIVE_RUNS:
        target.run(f"DELETE FROM run WHERE {_belongs('run')} AND NOT {_IS_OPEN}", _bounds(runs))


def find_seq_at(connection: Connection, at: str) -> int:
    """Find the last event written down at or before a moment; 0 when that is before the first.

    By halving, without an index: where the clock was set back, several events may be the last before the moment, and
    one of them is found.
    """
    before, beyond = 0, read_head(connection).seq + 1
    while beyond - before > 1:
        middle = (before + beyond) // 2
        if (queries.find_recorded_at(connection, middle) or "") <= at:
            before = middle
        else:
            beyond = middle
    return before


_IS_OPEN = is_in(OPEN_RUNS)


def _owner(change: Change) -> str:
    row = change.row if isinstance(change, Insert) else change.key
    return str(row[_COLUMNS[change.table][0]]).partition("/")[0]


def _select(table: str) -> str:
    return f"SELECT {', '.join(_COLUMNS[table])} FROM {table}"


def _belongs(table: str) -> str:
    name = _COLUMNS[table][0]
    return f"({name} = ? OR ({name} >= ? AND {name} < ?))"


def _bounds(convoy: str) -> tuple[str, str, str]:
    return convoy, f"{convoy}/", f"{convoy}0"  # "0" is the character next to "/"


def list_differences(live: Connection, again: Connection) -> list[str]:
    """Say in a sentence each where the live tables are not what the log says; the first few are enough."""
    found: list[str] = []
    for table in PROJECTED_TABLES:
        for sentence in _compare(table, live, again):
            found.append(sentence)
            if len(found) == MAX_DIFFERENCES:
                return found
    return found


def _compare(table: str, live: Connection, again: Connection) -> Iterator[str]:
    width, lefts, rights = _KEY_WIDTHS[table], _stream(live, table), _stream(again, table)
    left, right = next(lefts, None), next(rights, None)
    while left is not None or right is not None:
        if left == right:
            left, right = next(lefts, None), next(rights, None)
        elif left is not None and (right is None or _order(left[:width]) < _order(right[:width])):
            yield f"{table} {_say_key(left[:width])} is in the tables, and nothing in the log says so."
            left = next(lefts, None)
        elif right is not None and (left is None or _order(right[:width]) < _order(left[:width])):
            yield f"{table} {_say_key(right[:width])} is in the log, and not in the tables."
            right = next(rights, None)
        elif left is not None and right is not None:
            for column, is_, said in zip(_COLUMNS[table], left, right, strict=True):
                if is_ != said:
                    yield f"{table} {_say_key(left[:width])}: {column} is {is_!r}, and the log says {said!r}."
            left, right = next(lefts, None), next(rights, None)


def _stream(connection: Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Read a table in the order of its key, a page at a time."""
    width, names = _KEY_WIDTHS[table], _COLUMNS[table]
    key, marks = ", ".join(names[:width]), ", ".join("?" * width)
    select, order = _select(table), f"ORDER BY {key} LIMIT {PAGE}"
    rows = connection.rows(f"{select} {order}")
    while rows:
        yield from rows
        rows = connection.rows(f"{select} WHERE ({key}) > ({marks}) {order}", rows[-1][:width])


def _order(key: tuple[Any, ...]) -> list[tuple[bool, Any]]:
    # As SQLite sorts: a damaged table may hold text where a number belongs, and numbers come first.
    return [(isinstance(value, str), value) for value in key]


def _say_key(key: tuple[Any, ...]) -> str:
    return "/".join(map(str, key))
