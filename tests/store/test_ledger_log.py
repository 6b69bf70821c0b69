"""The log: no gaps, one unbroken chain, nothing by halves, nothing told before it is durable."""

import contextlib
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hivekeeper.domain.events import Body, ConvoyExtended, ConvoySubmitted, chain_hash, encode_body
from hivekeeper.errors import HiveError, IllegalTransitionError
from hivekeeper.store import queries
from hivekeeper.store.ledger import GENESIS, ByPerson, Ledger, open_ledger, read_events, read_head
from tests.needs import need_strace
from tests.store.ledger_children import added
from tests.store.ledger_kit import (
    PERSON,
    TickingClock,
    assert_whole,
    count_descriptors,
    dump,
    dump_all,
    fingerprint,
    head_of,
    new_ledger,
    opened,
    rebuild,
    say,
    seize,
)


class BoomError(Exception):
    """Something unforeseen."""


def submit_and_break(ledger: Ledger, name: str, error: BaseException) -> None:
    with ledger.write(PERSON) as tx:
        tx.record(ConvoySubmitted(name, name))
        tx.record(added(name, "t"))
        tx.beat(boot_id="b", monotonic_s=1.0)
        raise error


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    with new_ledger(tmp_path, TickingClock()) as opened_ledger:
        yield opened_ledger


def submit(ledger: Ledger, *names: str) -> None:
    with ledger.write(PERSON) as tx:
        for name in names:
            tx.record(ConvoySubmitted(name, f"pipeline_{name}"))


def test_a_new_ledger_is_empty_and_has_a_name_of_its_own(tmp_path: Path) -> None:
    heads = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        with new_ledger(tmp_path / name) as ledger:
            heads.append(head_of(ledger))
    assert [(head.seq, head.hash, head.epoch) for head in heads] == [(0, GENESIS, 0)] * 2
    assert heads[0].hive != heads[1].hive


def test_making_a_ledger_again_leaves_it_as_it_is(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        submit(ledger, "a", "b")
        before = dump_all(ledger)
    with new_ledger(tmp_path) as ledger:
        assert dump_all(ledger) == before


def test_events_are_numbered_without_gaps_and_the_head_is_the_last_one(ledger: Ledger, tmp_path: Path) -> None:
    for batch in (["a"], ["b", "c", "d"], ["e"]):
        submit(ledger, *batch)
        with pytest.raises(BoomError):  # an undone transaction must not use up a number
            submit_and_break(ledger, "lost", BoomError())
    with ledger.read() as connection:
        events, head = read_events(connection, 0, 100), read_head(connection)
    assert [event.seq for event in events] == [1, 2, 3, 4, 5]
    assert (head.seq, head.hash, head.epoch) == (5, events[-1].hash, events[-1].epoch)
    assert assert_whole(tmp_path / "ledger.db") == 5


def test_an_event_keeps_who_why_and_both_its_times(ledger: Ledger) -> None:
    with ledger.write(ByPerson("bea")) as tx:
        late = tx.record(ConvoySubmitted("late", "p"), why="she said so", occurred_at="2020-01-01T00:00:00.000000Z")
        at_once = tx.record(ConvoySubmitted("now", "q"))
    with ledger.read() as connection:
        assert read_events(connection, 0, 10) == [late, at_once]
    assert (late.who, late.why, late.occurred_at) == ("bea", "she said so", "2020-01-01T00:00:00.000000Z")
    assert late.recorded_at > late.occurred_at
    assert at_once.occurred_at == at_once.recorded_at
    assert late.recorded_at < at_once.recorded_at, "two events of one transaction look as if they happened at once"
    assert dump(ledger)["convoy"][0][3] == "2020-01-01T00:00:00.000000Z", "tables show when it really happened"


@pytest.mark.parametrize("error", [BoomError, HiveError, KeyboardInterrupt, GeneratorExit])
def test_an_exception_inside_a_transaction_leaves_nothing(ledger: Ledger, error: type[BaseException]) -> None:
    submit(ledger, "before")
    before = dump_all(ledger)
    with pytest.raises(error):
        submit_and_break(ledger, "a", error("boom"))
    assert dump_all(ledger) == before
    submit(ledger, "after")


@pytest.mark.parametrize("before", [0, 1, 2], ids=["alone", "after one event", "after two events"])
def test_a_refused_event_leaves_nothing_even_when_its_writer_catches_the_refusal(
    ledger: Ledger, tmp_path: Path, before: int
) -> None:
    # The writer may be told of it once more when it leaves, or not.
    with contextlib.suppress(HiveError), ledger.write(PERSON) as tx:
        for number in range(before):
            tx.record(ConvoySubmitted(f"c{number}", f"c{number}"))
        with contextlib.suppress(IllegalTransitionError):
            tx.record(ConvoyExtended("nobody"))
    with ledger.read() as connection:
        assert "convoy.extended" not in [event.body.kind for event in read_events(connection, 0, 10)]
    assert rebuild(ledger) == dump(ledger)
    assert_whole(tmp_path / "ledger.db")
    submit(ledger, "goes on")
    with opened(tmp_path / "ledger.db") as again:
        submit(again, "goes on elsewhere")


def test_a_transaction_goes_on_or_is_undone_after_a_caught_refusal_but_nothing_is_half_written(
    ledger: Ledger, tmp_path: Path
) -> None:
    try:
        with ledger.write(PERSON) as tx:
            tx.record(ConvoySubmitted("a", "pa"))
            with contextlib.suppress(IllegalTransitionError):
                tx.record(ConvoyExtended("a"))
            tx.record(ConvoySubmitted("b", "pb"))
    except HiveError:
        assert head_of(ledger).seq == 0
    assert rebuild(ledger) == dump(ledger)
    assert_whole(tmp_path / "ledger.db")


def test_inside_a_transaction_its_own_writes_are_seen_and_outside_they_are_not(ledger: Ledger) -> None:
    with ledger.write(PERSON) as tx:
        tx.record(ConvoySubmitted("a", "pa"))
        assert queries.find_convoy(tx.connection, "a") is not None
        with ledger.read() as connection:
            assert queries.find_convoy(connection, "a") is None
            assert read_head(connection).seq == 0


def test_an_empty_transaction_writes_not_one_byte(tmp_path: Path) -> None:
    with new_ledger(tmp_path) as ledger:
        submit(ledger, "a")
    before = fingerprint(tmp_path / "ledger.db")
    with opened(tmp_path / "ledger.db") as ledger:
        version, log = ledger.version(), Path(f"{tmp_path}/ledger.db-wal")
        for _ in range(5):
            with ledger.write(PERSON) as tx:
                queries.list_convoys(tx.connection)
        assert ledger.version() == version
        assert not log.exists() or log.stat().st_size == 0
    assert fingerprint(tmp_path / "ledger.db") == before


_SYNC_SCRIPT = """
import sys
from pathlib import Path
from hivekeeper.domain.events import ConvoySubmitted
from hivekeeper.store.ledger import ByPerson, open_ledger
ledger = open_ledger(Path(sys.argv[1]))
for number in range(20):
    with ledger.write(ByPerson("p")) as tx:
        if sys.argv[2] == "write":
            tx.record(ConvoySubmitted(f"c{number}", f"p{number}"))
import os
os._exit(0)  # without the write-back at close
"""


def _count_syncs(path: Path, mode: str) -> int:
    log = path.with_name(f"{mode}.strace")
    command = ["strace", "-f", "-qq", "-y", "-o", str(log), "-e", "trace=fsync,fdatasync", sys.executable, "-c"]
    command += [_SYNC_SCRIPT, str(path), mode]
    done = subprocess.run(command, check=False, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return sum("ledger.db" in line for line in log.read_text().splitlines())


def test_every_write_reaches_the_disk_and_an_empty_transaction_does_not_bother_it(tmp_path: Path) -> None:
    need_strace()
    with new_ledger(tmp_path):
        pass
    assert _count_syncs(tmp_path / "ledger.db", "empty") == 0
    assert _count_syncs(tmp_path / "ledger.db", "write") >= 20


def test_listeners_are_told_after_the_write_is_visible_to_everybody(ledger: Ledger, tmp_path: Path) -> None:
    told: list[tuple[list[str], int]] = []

    def listen(bodies: Sequence[Body]) -> None:
        with opened(tmp_path / "ledger.db") as somebody_else:
            told.append(([body.subject for body in bodies], head_of(somebody_else).seq))

    ledger.on_commit.append(listen)
    submit(ledger, "a", "b")
    assert told == [(["a", "b"], 2)]


def test_a_listener_may_itself_write(ledger: Ledger) -> None:
    def listen(bodies: Sequence[Body]) -> None:
        if bodies[0].subject == "first":
            submit(ledger, "second")

    ledger.on_commit.append(listen)
    submit(ledger, "first")
    assert head_of(ledger).seq == 2


def test_listeners_hear_nothing_of_what_was_undone_or_empty_or_a_heartbeat(ledger: Ledger) -> None:
    keeper = seize(ledger)
    told: list[object] = []
    ledger.on_commit.append(told.append)
    with pytest.raises(BoomError):
        submit_and_break(ledger, "a", BoomError())
    with pytest.raises(IllegalTransitionError), ledger.write(PERSON) as tx:
        tx.record(ConvoyExtended("nobody"))
    with ledger.write(PERSON):
        pass
    with ledger.write(keeper) as tx:
        tx.beat(boot_id="b", monotonic_s=1.0)
    assert told == []


def test_a_heartbeat_is_a_row_and_never_an_event(ledger: Ledger) -> None:
    keeper = seize(ledger)
    before = head_of(ledger)
    for moment in (1.0, 2.5):
        with ledger.write(keeper) as tx:
            tx.beat(boot_id="boot", monotonic_s=moment)
    assert head_of(ledger) == before
    with ledger.read() as connection:
        beat = queries.find_heartbeat(connection)
    assert beat is not None
    assert (beat.epoch, beat.boot_id, beat.monotonic_ms) == (keeper.epoch, "boot", 2500)


PAYLOADS = {
    "unicode": "Grüße, 世界, 👩‍👩‍👧, \u202eright to left\u202c, e\u0301",
    "nul": "before\0after\0",
    "control characters": "".join(map(chr, range(32))) + "\x7f\x85\u2028\ufeff",
    "quotes": """'"`; DROP TABLE event; --\\n\\""",
    "noncharacters": "\uffff\U0010ffff",
    "a megabyte": "ä" * 500_000 + "x" * 48_576,
    "nothing": "",
}


@pytest.mark.parametrize("text", PAYLOADS.values(), ids=PAYLOADS.keys())
def test_any_text_comes_back_as_it_was_given(tmp_path: Path, text: str) -> None:
    with new_ledger(tmp_path) as ledger:
        submit(ledger, "c")
        keeper = seize(ledger, f"keeper {text[:1000]}")
        body = say("run.intended", task=text, argv=[text, text], environment={"K": text}, limits={"l": text})
        with ledger.write(keeper) as tx:
            tx.record(body, why=text)
            tx.record(added("c", "t", text), why=text)
        live = dump(ledger)
        assert rebuild(ledger) == live
    with opened(tmp_path / "ledger.db") as ledger, ledger.read() as connection:
        event, task = read_events(connection, 2, 1)[0], queries.find_task(connection, "c/t")
    assert event.body == body
    assert event.why == text
    assert task is not None
    assert task.command == text
    assert_whole(tmp_path / "ledger.db")


@pytest.mark.parametrize("where", ["body", "why", "who"])
def test_a_lone_surrogate_is_kept_or_refused_in_words_but_never_half_written(
    ledger: Ledger, tmp_path: Path, where: str
) -> None:
    bad = "a file named \udcff"  # what Python makes of a file name that is not UTF-8
    who, why, name = (bad if where == place else "fine" for place in ("who", "why", "body"))
    submit(ledger, "before")
    before = dump_all(ledger)
    try:
        with ledger.write(ByPerson(who)) as tx:
            tx.record(ConvoySubmitted("first", "first"))
            tx.record(ConvoySubmitted(name, "second"), why=why)
    except HiveError:
        assert dump_all(ledger) == before
    except UnicodeError as error:
        assert dump_all(ledger) == before
        pytest.fail(f"nothing was written, but the writer is told {error!r} instead of a HiveError")
    submit(ledger, "after")
    assert rebuild(ledger) == dump(ledger)


@pytest.mark.parametrize("number", [2**63, -(2**63) - 1, 2**100])
def test_a_number_the_database_cannot_hold_is_refused_in_words(ledger: Ledger, number: int) -> None:
    submit(ledger, "c")
    before = dump_all(ledger)
    try:
        with ledger.write(PERSON) as tx:
            tx.record(replace(added("c", "t"), priority=number))
    except OverflowError as error:
        assert dump_all(ledger) == before
        pytest.fail(f"nothing was written, but the writer is told {error!r} instead of a HiveError")
    except HiveError:
        assert dump_all(ledger) == before


@given(st.lists(st.text(max_size=8), min_size=1, max_size=5), st.lists(st.text(max_size=8), min_size=1, max_size=5))
def test_no_two_lists_of_fields_have_one_hash(one: list[str], other: list[str]) -> None:
    assert (chain_hash(GENESIS, *one) == chain_hash(GENESIS, *other)) == (one == other)


@settings(max_examples=50, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.text(st.characters(exclude_categories=["Cs"]), max_size=200))
def test_any_text_at_all_is_stored_under_its_own_hash(ledger: Ledger, text: str) -> None:
    keeper = seize(ledger)
    with ledger.write(keeper) as tx:
        event = tx.record(say("run.intended", run=f"run {tx.head.seq}", argv=[text], environment={"A": text}), why=text)
    with ledger.read() as connection:
        assert read_events(connection, event.seq - 1, 1) == [event]
        stored = connection.rows("SELECT data FROM event WHERE seq = ?", (event.seq,))[0][0]
    assert stored == encode_body(event.body)


def test_a_ledger_that_nobody_closed_leaves_no_file_open(tmp_path: Path) -> None:
    with new_ledger(tmp_path):
        pass
    before = count_descriptors()
    for name in ("a", "b", "c"):
        ledger = open_ledger(tmp_path / "ledger.db")
        submit(ledger, name)
        del ledger
    assert count_descriptors() == before
