"""Branches that are hard to merge: each a clear outcome, nothing of anybody's is lost, and main stays green."""

import os
import subprocess
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import pytest

from hivekeeper.domain.states import TaskState
from hivekeeper.store import queries
from tests.scenarios.test_queue import Line

GREEN = "test ! -e red"
LARGE = 20 << 20
NO_SUCH = "1234567812345678123456781234567812345678"
Make = Callable[[Path], object]


def write(name: bytes, data: bytes) -> Make:
    return lambda place: Path(os.fsdecode(os.fsencode(place) + b"/" + name)).write_bytes(data)


def shell(command: str) -> Make:
    return lambda place: subprocess.run(("sh", "-ec", command), cwd=place, check=True)


def make_odd_names(place: Path) -> None:
    for name in (b"caf\xe9", b"a\nb", b"a\tb", b'"quoted"', b" ", b"-x", b"\xf0\x9f\x8c\xb3", b"a:b", b"*"):
        write(name, b"odd\n")(place)


def make_large(place: Path) -> None:
    with (place / "large").open("wb") as file:
        file.write(os.urandom(1 << 20) * (LARGE >> 20))


def link_module(commit: str) -> str:
    return f"git update-index --add --cacheinfo 160000,{commit},$(git rev-parse --show-prefix)m; mkdir m"


# What is done on a branch, all of which lands.
ALONE: dict[str, Make] = {
    "mode": shell("chmod +x tool; rm gone"),
    "links": shell("ln -s /etc/passwd out; ln -s ../../../../x up; rm words; ln -s dir/one words"),
    "directory-for-file": shell("rm tool; mkdir tool; echo x > tool/x"),
    "file-for-directory": shell("rm -r dir; echo x > dir"),
    "link-for-directory": shell("rm -r dir; ln -s . dir"),
    "cases": shell("for name in A a Aa aA; do echo $name > $name; done"),
    "odd-names": make_odd_names,
    "large": make_large,
    "gitlink": shell(link_module(NO_SUCH)),
    "binary": write(b"binary", bytes(range(256)) * 64),
    "attributes": write(b".gitattributes", b"* text eol=crlf\n*.x filter=evil diff=evil merge=evil\n"),
    "renames": shell("git mv dir/one dir/uno; git mv dir/two two; echo more >> two"),
    "emptied": shell(": > words"),
}
# The first lands; the second is merged with it, or says where it conflicts.
PAIRS: dict[str, tuple[Make, Make, str]] = {
    "edit-of-renamed": (shell("git mv dir/one uno"), shell("echo more >> dir/one"), ""),
    "renamed-of-edit": (shell("echo more >> dir/one"), shell("git mv dir/one uno"), ""),
    "renamed-alike": (shell("git mv dir/one uno"), shell("git mv dir/one uno; echo x > x"), ""),
    "renamed-otherwise": (shell("git mv dir/one uno"), shell("git mv dir/one eins"), "eins"),
    "new-file-in-renamed-directory": (shell("git mv dir folder"), shell("echo three > dir/three"), "three"),
    "renamed-directory-with-new-file": (shell("echo three > dir/three"), shell("git mv dir folder"), "three"),
    "file-where-a-directory-is": (shell("mkdir new; echo x > new/x"), shell("echo x > new"), "new"),
    "directory-where-a-file-is": (shell("echo x > new"), shell("mkdir new; echo x > new/x"), "new"),
    "delete-of-edited": (shell("echo more >> gone"), shell("git rm -q gone"), "gone"),
    "edit-of-deleted": (shell("git rm -q gone"), shell("echo more >> gone"), "gone"),
    "both-add-otherwise": (write(b"new", b"a\n"), write(b"new", b"b\n"), "new"),
    "both-add-alike": (write(b"new", b"a\n"), shell("echo a > new; echo x > x"), ""),
    "modes": (shell("chmod +x tool"), shell("echo true >> tool"), ""),
    "links": (shell("ln -sf a words"), shell("ln -sf b words"), "words"),
    "gitlinks": (shell(link_module(NO_SUCH)), shell(link_module(NO_SUCH[::-1])), "m"),
    "large": (make_large, make_large, "large"),
    "markers": (write(b"words", b"<<<<<<< HEAD\n"), write(b"words", b"a\n=======\nb\n"), "words"),
}
# Names and texts that are no UTF-8, or break lines.
ODD: dict[str, tuple[Make, Make, str]] = {
    "latin-1-text": (write(b"words", b"caf\xe9 a\n"), write(b"words", b"caf\xe9 b\n"), "words"),
    "latin-1-name": (write(b"\xe9t\xe9", b"a\n"), write(b"\xe9t\xe9", b"b\n"), "t"),
    "line-feed-in-name": (write(b"a\nb", b"a\n"), write(b"a\nb", b"b\n"), "b"),
}


def make_line(directory: Path, places: Iterable[str]) -> Line:
    line = Line(directory / "hive", "[queue]\nparallel = 2\n")
    for place in places:
        files = {"words": "word", "dir/one": "one", "dir/two": "two", "tool": "tool", "gone": "gone"}
        for path, text in files.items():
            found = line.repository.path / place / path
            found.parent.mkdir(exist_ok=True, parents=True)
            found.write_text(f"{text} of {place}\n" * 9)
    line.repository.commit({}, "base")
    line.know(GREEN)
    return line


def commit(line: Line, name: str, make: Make, place: str = "", start: str = "main") -> None:
    repository = line.repository
    repository.git("checkout", "--quiet", "-B", name, start)
    make(repository.path / place)
    repository.git("add", "--all")
    repository.git("commit", "--quiet", "--allow-empty", "-m", name)
    repository.git("checkout", "--quiet", "--force", "main")
    repository.git("clean", "-ffdxq")


def commit_all(line: Line, name: str, makes: dict[str, Make]) -> None:
    commit(line, name, lambda path: [make(path / place) for place, make in makes.items()])


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Line]:
    """A queue of branches: one of every shape, one with the first of every pair, and the seconds."""
    line = make_line(tmp_path_factory.mktemp("branches"), [*(f"alone-{name}" for name in ALONE), *PAIRS])
    commit_all(line, "shapes", {f"alone-{name}": make for name, make in ALONE.items()})
    commit_all(line, "firsts", {name: first for name, (first, _, _) in PAIRS.items()})
    for name, (_, second, _) in PAIRS.items():
        commit(line, name, second, name)
    line.line_up("shapes", "firsts", *PAIRS)
    line.settle()
    yield line
    line.end()


@pytest.mark.parametrize("name", ["shapes", "firsts"])
def test_a_branch_of_any_shape_lands_with_exactly_its_change(played: Line, name: str) -> None:
    assert played.of(name).state is TaskState.COMPLETE, played.of(name).reason
    landed = played.of(name).commit_id
    change = played.repository.git("diff-tree", "-r", "--no-renames", "main", name)
    assert played.git("diff-tree", "-r", "--no-renames", f"{landed}^", str(landed)) == change


def assert_merged_or_told(line: Line, second: str, conflict: str) -> None:
    if not conflict:
        assert line.of(second).state is TaskState.COMPLETE, line.of(second).reason
        return
    assert line.of(second).state is TaskState.FAILED
    assert line.of(second).reason.startswith("it conflicts with what landed before it in ")
    assert conflict in line.of(second).reason
    with line.hive.ledger.read() as connection:
        (message,) = queries.list_mail(connection, line.of(second).key, 1)
    body = message.get_payload()
    assert conflict in body["hunks"]
    assert body["reproduce"] == "git merge origin/main"


@pytest.mark.parametrize("pair", list(PAIRS))
def test_the_second_is_merged_with_the_first_or_says_where_they_conflict(played: Line, pair: str) -> None:
    assert_merged_or_told(played, pair, PAIRS[pair][2])


def test_every_commit_of_theirs_is_green(played: Line) -> None:
    played.assert_green()
    assert played.repo().stopped is None


@pytest.fixture
def line(tmp_path: Path) -> Iterator[Line]:
    line = make_line(tmp_path, ["."])
    yield line
    line.end()


@pytest.mark.parametrize("pair", list(ODD))
def test_a_conflict_in_what_is_no_text_is_told_and_holds_up_nobody(line: Line, pair: str) -> None:
    first, second, conflict = ODD[pair]
    commit(line, "first", first)
    commit(line, "second", second)
    commit(line, "innocent", write(b"innocent", b""))
    line.line_up("first", "second", "innocent")
    line.settle()
    assert_merged_or_told(line, "second", conflict)
    assert line.landed() == ["first", "innocent"]
    line.assert_green()


def test_a_branch_with_merges_in_it_lands_as_one_commit(line: Line) -> None:
    commit(line, "side", write(b"side", b"side\n"))
    commit(line, "other", write(b"other", b"other\n"))
    commit(line, "merged", write(b"merged", b"merged\n"), start="side")
    line.repository.git("checkout", "--quiet", "merged")
    line.repository.git("merge", "--quiet", "--no-ff", "-m", "merge", "other")
    line.repository.git("checkout", "--quiet", "main")
    line.line_up("merged", "side", "other")
    line.settle()
    assert line.landed() == ["merged"]
    assert line.git("rev-list", "--merges", "--count", "main") == "0"
    assert line.git("ls-tree", "--name-only", "main", "side", "other", "merged").split() == ["merged", "other", "side"]
    for name in ("side", "other"):
        assert (line.of(name).state, line.of(name).commit_id) == (TaskState.COMPLETE, line.git("rev-parse", "main"))
    line.assert_green()


def test_a_history_of_its_own_and_a_change_that_adds_nothing_are_refused_without_a_gate(line: Line) -> None:
    commit(line, "nothing", lambda _: None)
    line.repository.git("checkout", "--quiet", "--orphan", "orphan")
    line.repository.git("commit", "--quiet", "-m", "orphan")
    line.repository.git("checkout", "--quiet", "--force", "main")
    line.hand_in("orphan")
    line.hand_in("nothing")
    line.settle()
    assert line.of("orphan").reason == "its work shares no history with the integration branch"
    assert "changed nothing" in line.of("nothing").reason
    assert line.gate_runs() == []
