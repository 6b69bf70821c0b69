"""The states a power cut may leave: nothing durable is ever missing, and whatever is not can be."""

import sys
from collections.abc import Sequence
from pathlib import Path

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.needs import need_strace
from tests.power.disk import Disk, State, UnknownFileError, enumerate_states, list_labels, replay
from tests.power.ops import Acknowledge, Link, MakeDirectory, Op, Open, Rename, Resize, Symlink, Sync, SyncAll, Write
from tests.power.trace import record
from tests.power.tree import Directory, File, SymbolicLink, Tree, digest_tree, load_tree

BIG = b"n" * 9000
Picture = dict[str, bytes | None]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory that is recorded."""
    made = tmp_path / "root"
    made.mkdir()
    (made / "config").write_text("old")
    return made


def run(root: Path, *argv: str) -> tuple[Tree, list[Op]]:
    """Record a command, and see that the record leads to what is really there."""
    need_strace()
    start = load_tree(root)
    ops = record(argv, root, root.with_suffix(".log"), acknowledged_through=root.with_name("told"))
    assert replay(start, ops) == load_tree(root)
    return start, ops


def python(root: Path, script: str) -> list[State]:
    prelude = "import os\ndef new(name): return os.open(name, os.O_WRONLY | os.O_CREAT)\n"
    return list(enumerate_states(*run(root, sys.executable, "-I", "-S", "-c", prelude + script)))


def picture(tree: Tree) -> Picture:
    """Show a tree with plain values; a directory is None."""
    return {path: node.content if isinstance(node, File) else None for path, node in tree.items()}


def pictures(states: Sequence[State]) -> list[Picture]:
    return [picture(state.tree) for state in states]


def contents(states: Sequence[State], name: str) -> list[bytes | None]:
    """Tell what a file holds in these states, without repeating; None is where it is missing."""
    return list(dict.fromkeys(shown.get(name) for shown in pictures(states)))


def after_promise(states: Sequence[State]) -> list[State]:
    return [state for state in states if state.acknowledged]


PROMISE = "\nos.write(new('../told'), b'done')\n"


def test_of_chosen_states_only_these_are_made_and_they_are_the_same(root: Path) -> None:
    script = "mkdir d && echo data > d/f && sync d/f && mv d/f g && echo more >> g"
    start, ops = run(root, "sh", "-c", script)
    every = {state.label: state for state in enumerate_states(start, ops)}
    assert every.keys() <= set(list_labels(start, ops))
    for label, state in every.items():
        assert list(enumerate_states(start, ops, chosen={label})) == [state]


def test_a_write_without_fsync_may_be_there_half_zeroed_empty_or_missing_with_its_file(root: Path) -> None:
    states = python(root, "f = new('f'); os.write(f, b'data')" + PROMISE)
    assert set(contents(after_promise(states), "f")) == {b"data", b"da", b"", b"\0\0\0\0", None}


def test_an_fsynced_file_is_there_though_its_directory_was_not_synced(root: Path) -> None:
    states = python(root, "os.mkdir('d'); f = new('d/f'); os.write(f, b'data'); os.fsync(f)" + PROMISE)
    assert contents(after_promise(states), "d/f") == [b"data"]
    assert None in contents(states, "d/f")


def test_a_synced_directory_keeps_the_name_but_not_the_data(root: Path) -> None:
    states = python(root, "f = new('f'); os.write(f, b'data'); os.fsync(os.open('.', os.O_RDONLY))" + PROMISE)
    assert set(contents(after_promise(states), "f")) == {b"data", b"da", b"", b"\0\0\0\0"}


def test_a_rename_without_directory_fsync_happened_or_not_and_never_leaves_neither(root: Path) -> None:
    script = "f = new('tmp'); os.write(f, b'new'); os.fsync(f); os.rename('tmp', 'config')"
    states = python(root, script + PROMISE)
    assert pictures(after_promise(states)) == [{"config": b"new"}, {"config": b"old", "tmp": b"new"}]


def test_a_rename_before_the_data_is_synced_may_leave_an_empty_file(root: Path) -> None:
    states = python(root, "f = new('tmp'); os.write(f, b'new'); os.rename('tmp', 'config')" + PROMISE)
    assert {b"new", b"old", b"", b"\0\0\0"} <= set(contents(after_promise(states), "config"))


def test_the_classic_safe_replacement_is_safe_at_every_moment_and_kept_once_promised(root: Path) -> None:
    script = "f = new('tmp'); os.write(f, b'new'); os.fsync(f); os.rename('tmp', 'config')"
    states = python(root, f"{script}; os.fsync(os.open('.', os.O_RDONLY))" + PROMISE)
    assert contents(states, "config") == [b"old", b"new"]
    assert pictures(after_promise(states)) == [{"config": b"new"}]


def test_an_unsynced_append_is_lost_from_the_end_or_leaves_a_hole(root: Path) -> None:
    states = python(root, "f = os.open('config', os.O_WRONLY | os.O_APPEND); os.write(f, b'AA'); os.write(f, b'BB')")
    assert set(contents(states, "config")) == {b"oldAABB", b"oldAAB", b"oldAA", b"oldA", b"old", b"old\0\0BB"}


def test_an_unsynced_write_in_the_middle_leaves_what_was_there(root: Path) -> None:
    states = python(root, "f = os.open('config', os.O_RDWR); os.pwrite(f, b'XY', 1); os.pwrite(f, b'Z', 2)")
    assert set(contents(states, "config")) == {b"oXd", b"oXY", b"oXZ", b"olZ", b"old"}


def test_what_two_processes_wrote_is_lost_each_for_itself(root: Path) -> None:
    start, ops = run(root, "sh", "-c", "(echo a > a) & (echo b > b) & wait")
    shown = pictures(list(enumerate_states(start, ops)))
    for a in (b"a\n", b"", None):
        assert {"config": b"old", "b": b"b\n"} | ({} if a is None else {"a": a}) in shown
    for b in (b"b\n", b"", None):
        assert {"config": b"old", "a": b"a\n"} | ({} if b is None else {"b": b}) in shown


def test_a_sync_of_one_descriptor_covers_what_its_duplicate_and_a_child_wrote(root: Path) -> None:
    script = """
f = new('f'); g = os.dup(f); os.write(g, b'dup ')
if os.fork() == 0: os.write(f, b'child'); os._exit(0)
os.wait(); os.fdatasync(f)
"""
    assert contents(after_promise(python(root, script + PROMISE)), "f") == [b"dup child"]


def test_a_lost_directory_takes_along_what_was_made_in_it(root: Path) -> None:
    ops: list[Op] = [
        MakeDirectory("d", 0o755),
        MakeDirectory("d/e", 0o755),
        Open(1, "d/e/f", create=True),
        Rename("d/e/f", "g"),
    ]
    states = {state.label: picture(state.tree) for state in enumerate_states(load_tree(root), ops)}
    assert states["3-all"] == {"config": b"old", "d": None, "d/e": None, "g": b""}
    assert states["0-durable"] == {"config": b"old"}
    # Lost with the directory: the file that was made in it and moved out. The other losses repeat earlier states.
    assert [label for label in states if label.startswith("3")] == ["3-all"]


def test_a_lost_creation_takes_the_rename_along_and_a_lost_rename_what_came_after(root: Path) -> None:
    start = load_tree(root)
    ops: list[Op] = [Rename("config", "kept"), Open(1, "config", create=True), Write(1, 0, b"new")]
    shown = pictures(list(enumerate_states(start, ops)))
    assert {"config": b"old"} in shown
    assert {"config": b"new"} not in shown
    for one in shown:
        assert b"old" in one.values(), "no loss of a change of names loses a file that was durable"


def test_a_file_fsynced_after_its_rename_has_its_new_name_for_good(root: Path) -> None:
    ops: list[Op] = [
        Open(1, "tmp", create=True),
        Write(1, 0, b"new"),
        Rename("tmp", "config"),
        Sync(1),
        Acknowledge(b"x"),
    ]
    states = list(enumerate_states(load_tree(root), ops))
    assert pictures(after_promise(states)) == [{"config": b"new"}]


def test_a_sync_of_everything_leaves_nothing_to_lose(root: Path) -> None:
    made: list[Op] = [
        MakeDirectory("d", 0o755),
        Symlink("d/l", "../config"),
        Open(1, "d/f", create=True),
        Write(1, 0, BIG),
    ]
    states = list(enumerate_states(load_tree(root), [*made, SyncAll(), Acknowledge(b"x")]))
    assert [state.label for state in after_promise(states)] == ["5-all"]


def test_a_truncation_may_be_lost_like_a_write(root: Path) -> None:
    ops: list[Op] = [Open(1, "config", truncate=True), Write(1, 0, b"n"), Resize(1, 5)]
    shown = set(contents(list(enumerate_states(load_tree(root), ops)), "config"))
    assert shown == {b"", b"old", b"n", b"nld", b"n\0\0\0\0", b"nld\0\0", b"\0\0\0\0\0"}


def test_states_are_told_once_for_each_promise_with_a_digest_that_fits(root: Path) -> None:
    one: list[Op] = [
        Open(1, "f", create=True),
        Write(1, None, BIG),
        Resize(1, 5000),
        Write(1, None, BIG),
        Acknowledge(b"1"),
    ]
    ops: list[Op] = [*one, Open(2, "f"), Write(2, 4090, b"middle"), Sync(2), Write(2, None, b"end"), Acknowledge(b"2")]
    states = list(enumerate_states(load_tree(root), ops))
    assert all(state.digest == digest_tree(state.tree) for state in states)
    told = [(state.digest, state.acknowledged) for state in states]
    assert len(told) == len(set(told))
    assert {state.acknowledged for state in states if state.digest == states[-1].digest} == {b"1", b"12"}
    assert [state.label for state in enumerate_states(load_tree(root), ops, last=0) if "dropped" in state.label] == []


CHANGES = st.one_of(
    st.builds(Write, st.just(1), st.integers(0, 9000), st.binary(min_size=1, max_size=9).map(lambda data: data * 999)),
    st.builds(Resize, st.just(1), st.integers(0, 20000), st.booleans()),
)


def replay_bytes(changes: Sequence[Op]) -> bytes:
    """Do the same to plain bytes, in the plainest way."""
    content = bytearray()
    for op in changes:
        if isinstance(op, Write):
            assert op.offset is not None
            content.extend(bytes(max(0, op.offset - len(content))))
            content[op.offset : op.offset + len(op.data)] = op.data
        elif isinstance(op, Resize) and not (op.grow and op.size < len(content)):
            content.extend(bytes(max(0, op.size - len(content))))
            del content[op.size :]
    return bytes(content)


@given(st.lists(CHANGES, min_size=1, max_size=6), st.lists(CHANGES, min_size=1, max_size=6))
def test_each_loss_is_the_file_as_if_that_change_had_never_been(synced: list[Op], unsynced: list[Op]) -> None:
    ops: list[Op] = [Open(1, "f", create=True), *synced, Sync(1), *unsynced]
    states = list(enumerate_states({}, ops))
    assert all(state.digest == digest_tree(load(state.tree)) for state in states)
    legal = {replay_bytes([*synced, *unsynced]), replay_bytes(synced)}
    for number in range(1, len(unsynced) + 1):
        done = [*synced, *unsynced[:number]]
        legal |= {replay_bytes(done[:lost] + done[lost + 1 :]) for lost in range(len(synced), len(done))}
    after = [state for state in states if int(state.label.split("-")[0]) >= len(ops) - len(unsynced)]
    assert legal <= set(contents(states, "f"))
    assert set(contents([state for state in after if "torn" not in state.label], "f")) <= legal


def test_the_same_chunks_in_another_order_are_another_file() -> None:
    one, two = b"1" * 4096, b"2" * 4096
    assert File().with_bytes(0, one + two).digest != File().with_bytes(0, two + one).digest


def load(tree: Tree) -> Tree:
    """Build the files of a tree anew."""
    return {path: File().with_bytes(0, node.content) for path, node in tree.items() if isinstance(node, File)}


def test_a_state_is_written_over_whatever_was_there(root: Path, tmp_path: Path) -> None:
    (root / "d").mkdir()
    (root / "d/run").write_bytes(BIG)
    (root / "d/run").chmod(0o750)
    (root / "dangling").symlink_to("nowhere")
    state = State("0-all", load_tree(root), b"", 0)
    assert state.tree["dangling"] == SymbolicLink("nowhere")
    assert state.tree["d"] == Directory()
    other = tmp_path / "other"
    (other / "d/run").mkdir(parents=True)
    (other / "config").symlink_to(root / "config")
    for _ in range(2):
        Disk(other).become(state)
        assert load_tree(other) == state.tree
        assert (other / "d/run").stat().st_mode & 0o777 == 0o750
        assert not (other / "config").is_symlink()


def test_what_a_recovery_changed_is_undone_by_the_next_state_and_the_rest_not_touched(root: Path) -> None:
    for name in ("same", "grown", "mode", "gone", "swapped", "d/deep"):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(BIG)
    state, disk = State("0-all", load_tree(root), b"", 0), Disk(root)
    disk.become(state)
    before = {name: (root / name).stat().st_ino for name in ("config", "d/deep")}
    with (root / "same").open("r+b") as file:
        file.write(b"N")
    with (root / "grown").open("ab") as file:
        file.write(b"more")
    (root / "mode").chmod(0o700)
    (root / "gone").unlink()
    (root / "swapped").rename(root / "d/new")
    (root / "swapped").mkdir()
    (root / "x-shm").touch()
    disk.become(state)
    assert load_tree(root) == state.tree
    assert not (root / "x-shm").exists()
    assert {name: (root / name).stat().st_ino for name in before} == before


def test_a_file_that_nobody_loaded_is_named(root: Path) -> None:
    with pytest.raises(UnknownFileError, match="Nothing is known of none"):
        list(enumerate_states(load_tree(root), [Rename("none", "config")]))
    with pytest.raises(UnknownFileError, match=r"Operation 1 .*lost"):
        list(enumerate_states(load_tree(root), [Open(1, "none"), Write(1, 0, b"lost")]))


def test_git_can_be_cut_off_anywhere_and_its_states_are_whole_trees(root: Path) -> None:
    start, ops = run(root, "sh", "-ec", "git init -q r && cd r && echo a > a && git add a && git commit -qm one")
    labels = [state.label for state in enumerate_states(start, ops, last=8)]
    assert len(labels) > 500
    assert len(labels) == len(set(labels))


ROWS = """
import apsw, os, sys
told = os.open("../told", os.O_WRONLY | os.O_CREAT)
db = apsw.Connection("db")
assert db.pragma("journal_mode", "wal") == "wal"
db.pragma("synchronous", sys.argv[1])
db.pragma("wal_autocheckpoint", 5)
db.execute("create table t (n integer primary key, filler)")
for n in range(8):
    db.execute("insert into t values (?, zeroblob(1500))", (n,))
    os.write(told, b"%d\\n" % n)
if sys.argv[2] == "close":
    db.close()
os._exit(0)
"""


def rows_in(directory: Path) -> set[int]:
    db = apsw.Connection(str(directory / "db"))
    try:
        assert db.pragma("integrity_check") == "ok"
        if db.execute("select 1 from sqlite_schema").fetchone() is None:
            return set()
        return {row[0] for row in db.execute("select n from t")}
    finally:
        db.close()


def lost_rows(root: Path, synchronous: str, end: str) -> list[str]:
    """List the states in which a row is missing that had been acknowledged."""
    start, ops = run(root, sys.executable, "-c", ROWS, synchronous, end)
    lost, number = [], 0
    for number, state in enumerate(enumerate_states(start, ops), 1):  # noqa: B007 - counted for the assertion
        Disk(root).become(state)
        acknowledged = {int(line) for line in state.acknowledged.split()}
        if not acknowledged <= rows_in(root):
            lost.append(state.label)
    assert number > 100
    return lost


@pytest.mark.parametrize("end", ["close", "die"])
def test_sqlite_keeps_every_acknowledged_row_when_it_syncs_each_commit(root: Path, end: str) -> None:
    assert lost_rows(root, "FULL", end) == []


def test_sqlite_may_lose_acknowledged_rows_when_it_does_not(root: Path) -> None:
    assert lost_rows(root, "NORMAL", "close") != []


def test_two_names_of_one_file_are_still_two_names_of_one_file(tmp_path: Path) -> None:
    start: Tree = {"one": File().with_bytes(0, b"x")}
    states = list(enumerate_states(start, [Link("one", "other")]))
    both = next(state for state in states if "other" in state.tree)
    for _ in range(2):
        Disk(tmp_path).become(both)
        assert (tmp_path / "one").samefile(tmp_path / "other")
    alone = next(state for state in states if "other" not in state.tree)
    Disk(tmp_path).become(alone)
    assert [path.name for path in tmp_path.iterdir()] == ["one"]
