"""Conflicts that rules settle, and those they leave alone; the conflicted text is git's own every time."""

import subprocess
import tempfile
from pathlib import Path
from time import process_time

import pytest

from hivekeeper.domain.rules import MAX_CHARACTERS, Resolved, Sides, has_markers, list_lost_lines, resolve_file
from tests.git import git


def make_conflict(base: str, ours: str, theirs: str) -> str:
    """Have git merge three versions of a file."""
    with tempfile.TemporaryDirectory() as directory:
        names = {"ours": ours, "base": base, "theirs": theirs}
        for name, text in names.items():
            (Path(directory) / name).write_bytes(text.encode(errors="surrogateescape"))
        merged = subprocess.run(
            ("git", "merge-file", "-p", "--diff3", *names), cwd=directory, check=False, capture_output=True
        )
    assert merged.returncode < 128, merged.stderr
    return merged.stdout.decode(errors="surrogateescape")


def settle(path: str, base: str, ours: str, theirs: str) -> Resolved | None:
    """Settle what git makes of three versions."""
    conflicted = make_conflict(base, ours, theirs)
    assert has_markers(conflicted), "git settled it"
    return resolve_file(Sides(path, base, ours, theirs), conflicted)


def test_what_both_sides_say_in_different_blank_space_is_said_once() -> None:
    settled = settle("a.txt", "one\n", "two = 2\n", "two  =  2  \n\n")
    assert settled == Resolved("two = 2\n", ("same",))


@pytest.mark.parametrize("swapped", [False, True])
def test_a_side_that_changed_only_blank_space_gives_way_to_the_other(*, swapped: bool) -> None:
    blank, changed = "x = f(a, b)\n\n", "x = g(a,b)\n"
    settled = settle("a.py", "x = f(a,b)\n", *((changed, blank) if swapped else (blank, changed)))
    assert settled == Resolved(changed, ("one-sided",))


def test_indentation_is_blank_space_only_where_a_language_does_not_read_it() -> None:
    base, indented, changed = "f();\ng();\n", "  f();\n  g();\n", "f();\nh();\n"
    assert settle("a.js", base, indented, changed) == Resolved(changed, ("one-sided",))
    assert settle("a.py", base, indented, changed) is None
    assert settle("a.yaml", base, indented, changed) is None
    assert settle("a.py", "\tf(a)\n", " " * 8 + "f(a)\n", "\tg(a)\n") == Resolved("\tg(a)\n", ("one-sided",))


def test_blank_space_between_quotes_is_no_blank_space() -> None:
    assert settle("a.js", 'f("a b")\n', 'f("a  b")\n', 'g("a b")\n') is None


def test_names_imported_by_both_sides_are_all_imported() -> None:
    settled = settle("a.py", "from x import b\n", "from x import b, d\n", "from x import a, b, c as e\n")
    assert settled == Resolved("from x import a, b, c as e, d\n", ("import-union",))


def test_imports_of_one_module_that_both_sides_add_become_one_line() -> None:
    ours, theirs = "from a import p\nfrom x import one\n", "from x import two\nfrom z import q\n"
    expected = "from a import p\nfrom x import one, two\nfrom z import q\n"
    assert settle("a.py", "", ours, theirs) == Resolved(expected, ("import-union",))


def test_a_name_that_a_side_no_longer_imports_stays_away() -> None:
    settled = settle("a.py", "from x import a, b\n", "from x import a\n", "from x import a, b, c\n")
    assert settled == Resolved("from x import a, c\n", ("import-union",))


def test_names_that_are_in_no_order_stay_in_the_order_of_both() -> None:
    settled = settle("a.py", "from x import z, a\n", "from x import z, m, a\n", "from x import z, a, b\n")
    assert settled == Resolved("from x import z, m, a, b\n", ("import-union",))


@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        ("from x import a\n", "from x import a, b as n\n", "from x import a, c as n\n"),
        ("", "from x import a\n", "from y import a\n"),
        ("from x import a\n", "from x import a, b  # why\n", "from x import a, c\n"),
        ("from x import a\n", "from x import *\n", "from x import a, c\n"),
        ("from x import a, b\n", "from x import b, a\n", "from x import a, b, c\n"),
        ("from x import a\n", "", "from x import a, b\n"),
    ],
    ids=["one name twice", "from two modules", "a comment", "a star", "another order", "the module was dropped"],
)
def test_imports_that_are_more_than_sets_of_names_are_left_alone(base: str, ours: str, theirs: str) -> None:
    assert settle("a.py", base, ours, theirs) is None


def test_imports_are_united_in_python_only() -> None:
    assert settle("a.txt", "from x import b\n", "from x import b, d\n", "from x import b, c\n") is None


ONE = "@cached\ndef one(x: int) -> int:\n    return x\n\n\n"
TWO = "class Two:\n    def __init__(self) -> None:\n        self.x = 2\n\n\n"
THREE = "class Three:\n    def __init__(self) -> None:\n        self.x = 3\n\n\n"
MAIN = "def main() -> None:\n    pass\n"


def test_definitions_of_different_names_stand_one_below_the_other() -> None:
    settled = settle("a.py", MAIN, TWO + MAIN, "import os\n\nLIMIT: int = 3\n\n\n" + ONE + THREE + MAIN)
    expected = TWO + "import os\n\nLIMIT: int = 3\n\n\n" + ONE + THREE + MAIN
    assert settled == Resolved(expected, ("definitions",))


def test_methods_of_different_names_stand_one_below_the_other() -> None:
    base = "class A:\n    def z(self):\n        return 0\n"
    ours, theirs = (f"{base}\n    def {name}(self):\n        return 1\n" for name in "ab")
    settled = settle("a.py", base, ours, theirs)
    assert settled == Resolved(ours + theirs.removeprefix(base), ("definitions",))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (ONE, ONE.replace("return x", "return 2 * x")),
        ("import os as n\n", "from x import n\n"),
        ("x = 1\n", "z = 1\ncall(1)\n"),
        ("x = 1\n", "z = 1\nfrom y import *\n"),
        ("x = 1\n", "z = 1\ny +=\n"),
        ("x = 1\n", "# only this\n"),
        ("x = 1\n", "z = 1\nx.y = 1\n"),
        ("x = 1\n", "z = 1\nraise SystemExit\n"),
        ("x = 1\n", "y = \udcff\n"),
    ],
    ids=["one name", "imported", "a call", "a star", "no Python", "a comment", "an attribute", "a jump", "odd bytes"],
)
def test_what_does_more_than_define_different_names_is_left_alone(ours: str, theirs: str) -> None:
    assert settle("a.py", MAIN, ours + MAIN, theirs + MAIN) is None


def test_definitions_are_not_put_between_a_decorator_and_its_function() -> None:
    head = "@cached\n"
    assert settle("a.py", head + MAIN, head + ONE[8:] + head + MAIN, head + ONE[8:].replace("one", "two")) is None
    conflicted = "@cached\n<<<<<<< a\nx = 1\n||||||| b\n=======\ny = 1\n>>>>>>> c\n" + MAIN
    assert resolve_file(Sides("a.py", head + MAIN, f"{head}x = 1\n{MAIN}", f"{head}y = 1\n{MAIN}"), conflicted) is None


def test_definitions_whose_last_lines_follow_the_conflict_are_left_alone() -> None:
    base = "def a():\n    x = 1\n    return x\n"
    ours, theirs = (f"def {name}():\n    y = {name}\n    return x\n\n\n{base}" for name in "pq")
    conflicted = (
        f"<<<<<<< a\ndef p():\n    y = p\n||||||| b\n=======\ndef q():\n    y = q\n>>>>>>> c\n    return x\n\n\n{base}"
    )
    assert resolve_file(Sides("a.py", base, ours, theirs), conflicted) is None


@pytest.mark.parametrize("swapped", [False, True])
def test_definitions_next_to_another_conflict_are_left_alone(*, swapped: bool) -> None:
    lines = (("a = 1", "b = 1"), ("c=1", "c = 1"))
    hunks = [f"<<<<<<< a\n{ours}\n||||||| b\n=======\n{theirs}\n>>>>>>> c\n" for ours, theirs in lines]
    first, last = reversed(hunks) if swapped else hunks
    near = Sides("a.py", "\n", "a = 1\n\nc=1\n", "b = 1\n\nc = 1\n")
    assert resolve_file(near, first + "\n" + last) is None
    apart = Sides("a.py", "d = 1\n", "a = 1\nd = 1\nc=1\n", "b = 1\nd = 1\nc = 1\n")
    assert resolve_file(apart, first + "d = 1\n" + last) is not None


def test_definitions_in_the_place_of_something_else_are_left_alone() -> None:
    assert settle("a.py", "x = 1\n", "def a(): ...\n", "class B: ...\n") is None


def test_definitions_are_put_together_in_python_only() -> None:
    assert settle("a.txt", MAIN, ONE + MAIN, TWO + MAIN) is None


def test_statements_of_different_depth_are_left_alone() -> None:
    base = "if a:\n    pass\n"
    assert settle("a.py", base, base + "    x = 1\n", base + "y = 1\n") is None


@pytest.mark.parametrize(
    ("path", "base", "ours", "theirs", "expected"),
    [
        ("log.jsonl", '{"n":1}\n', '{"n":1}\n{"n":2}\n{"n":3}\n', '{"n":1}\n{"n":3}\n{"n":4}\n', [0, '{"n":4}\n']),
        ("requirements-x.txt", "a==1\nz==1\n", "a==1\nb==1\nz==1\n", "a==1\nc==1\nz==1\n", "a==1\nb==1\nc==1\nz==1\n"),
        ("src/.gitignore", "*.o\n", "*.o\n# logs\n*.log\n", "*.o\n# logs\n*.tmp\n", [0, "*.tmp\n"]),
        ("CODEOWNERS", "* @a\n", "* @a\n/x @b\n", "* @a\n/y @c\n", [0, "/y @c\n"]),
        ("go.sum", "m v1 h1:a\n", "m v1 h1:a\nn v1 h1:b\n", "m v1 h1:a\no v1 h1:c\n", [0, "o v1 h1:c\n"]),
        (
            "CHANGELOG.md", "# 1\n- old\n",
            "# Next\n\n## Fixed\n- a\n  more\n\n# 1\n- old\n", "# Next\n\n## Fixed\n- b\n  more\n\n# 1\n- old\n",
            "# Next\n\n## Fixed\n- a\n  more\n\n- b\n  more\n\n# 1\n- old\n",
        ),
        ("CHANGELOG", "# 1\n", "## New\n- a\n\n# 1\n", "## Old\n- b\n\n# 1\n", "## New\n- a\n\n## Old\n- b\n\n# 1\n"),
    ],
)  # fmt: skip
def test_entries_of_a_set_are_united_in_the_order_of_both(
    path: str, base: str, ours: str, theirs: str, expected: str | list[str]
) -> None:
    text = expected if isinstance(expected, str) else ours + str(expected[1])
    assert settle(path, base, ours, theirs) == Resolved(text, ("set-like",))


@pytest.mark.parametrize(
    ("base", "ours", "theirs", "expected"),
    [
        ("a\nb\nc\n", "a\nnew\nc\n", "a\nb\nother\nc\n", "a\nnew\nother\nc\n"),
        ("a\nb\nc\n", "a\nb\nother\nc\n", "a\nnew\nc\n", "a\nother\nnew\nc\n"),
        ("b\n", "one\nend\n", "b\ntwo\nend\n", "one\ntwo\nend\n"),
    ],
)
def test_an_entry_that_a_side_removed_does_not_come_back(base: str, ours: str, theirs: str, expected: str) -> None:
    assert settle(".gitignore", base, ours, theirs) == Resolved(expected, ("set-like",))


def test_entries_are_the_same_whatever_blank_lines_follow() -> None:
    settled = settle("CHANGELOG", "", "- a\n\n- b\n", "- a\n- c\n")
    assert settled == Resolved("- a\n\n- b\n- c\n", ("set-like",))


def test_an_entry_that_one_side_has_twice_is_there_twice() -> None:
    assert settle("log.jsonl", "", "x\nx\ny\n", "x\nz\n") == Resolved("x\nx\ny\nz\n", ("set-like",))


@pytest.mark.parametrize(
    ("path", "base", "ours", "theirs"),
    [
        ("notes.txt", "a\n", "a\nb\n", "a\nc\n"),
        ("requirements.txt", "a==1\n", "a==2\n", "a==3\n"),
        ("requirements.txt", "a==1\n", "a==2\n", "\n"),
        ("requirements.txt", "", "b==1\n", "b==2\n"),
        ("go.sum", "", "m v1 h1:a\n", "m v1 h1:b\n"),
        ("CODEOWNERS", "", "/x @a\n", "/x @b\n"),
        (".gitignore", "", "*.log\n", "!keep.log\n"),
        (".gitignore", "", "a\nb\nx\n", "b\na\n"),
        ("CHANGELOG.rst", "", "One\n---\n- a\n", "Two\n---\n- b\n"),
        ("CHANGELOG.md", "", "# 2\n## Fixed\n- a\n", "# 3\n## Fixed\n- b\n"),
        ("CHANGELOG.md", "- x\n", "- x\n# 2\n- a\n", "- x\n- y\n"),
        ("CHANGELOG.md", "- x\n", "- x\n  one\n", "- x\n  two\n"),
    ],
    ids=[
        "no set", "both changed it", "changed and removed", "two versions", "two checksums", "two owners", "negation",
        "contrary orders", "underlines", "other headings", "would slip under a heading", "inside an entry",
    ],
)  # fmt: skip
def test_entries_that_have_to_do_with_one_another_are_left_alone(path: str, base: str, ours: str, theirs: str) -> None:
    assert settle(path, base, ours, theirs) is None


def test_an_entry_is_not_put_between_another_and_what_is_indented_below_it() -> None:
    sides = Sides("CHANGELOG.md", "  x\n", "- a\n  x\n", "- b\n  x\n")
    assert resolve_file(sides, "<<<<<<< a\n- a\n||||||| b\n=======\n- b\n>>>>>>> c\n  x\n") is None


def test_one_conflict_that_no_rule_settles_leaves_the_whole_file() -> None:
    between = "1\n2\n3\n4\n"
    base, ours, theirs = "a\n" + between + "x\n", "b\n" + between + "y  z\n", "c\n" + between + "y z\n"
    assert settle("a.txt", base, ours, theirs) is None
    settled = settle("a.txt", base, ours.replace("b", "c  c"), theirs.replace("c", "c c"))
    assert settled == Resolved("c  c\n" + between + "y  z\n", ("same", "same"))


@pytest.mark.parametrize(
    ("path", "text", "bad"),
    [
        ("a.py", "x = 2\n", "= x 2\n"),
        ("a.py", "def a(): ...\ndef b(): a\n", "def a(): ...\ndef a(): b\n"),
        ("a.go", "func (t T) a()\nfunc (t T) b() a\n", "func (t T) a()\nfunc (t T) a() b\n"),
        ("a.json", "[2]\n", "]2[\n"),
        ("a.toml", "x = 2\n", "= x 2\n"),
        ("a.txt", "them >>>>>>>\n", ">>>>>>> them\n"),
    ],
    ids=["Python", "a definition twice", "in another language", "JSON", "TOML", "a marker"],
)
def test_a_result_that_does_not_read_as_the_versions_do_is_refused(path: str, text: str, bad: str) -> None:
    base = {"a.json": "[]\n"}.get(path, "")
    sides = Sides(path, base, text, text + "\n")
    for result, expected in ((text, Resolved(text, ("same",))), (bad, None)):
        assert resolve_file(sides, f"<<<<<<< a\n{result}||||||| b\n{base}=======\n{result}\n>>>>>>> c\n") == expected


def test_what_did_not_parse_before_need_not_parse_now() -> None:
    settled = settle("a.py", "print 1\nx\n", "print 1\ny  z\n", "print 1\ny z\n")
    assert settled == Resolved("print 1\ny  z\n", ("same",))


def test_what_a_side_added_elsewhere_must_not_be_missing() -> None:
    sides = Sides("a.txt", "a\n", "b\nmine\n", "b \n")
    hunk = "<<<<<<< a\nb\n||||||| b\na\n=======\nb \n>>>>>>> c\n"
    assert resolve_file(sides, hunk + "mine\n") is not None
    assert resolve_file(sides, hunk) is None
    assert resolve_file(sides, hunk + "mine\nmine\n") is None


def test_one_definition_that_both_sides_add_in_different_places_is_refused() -> None:
    base = "a = 1\n" + "# \n" * 9 + MAIN
    ours, theirs = ONE + base.replace("a = 1", "a  = 2"), base.replace("a = 1", "a = 2") + ONE
    conflicted = make_conflict(base, ours, theirs)
    assert conflicted.count("def one") == 2
    assert resolve_file(Sides("a.py", base, ours, theirs), conflicted) is None
    assert resolve_file(Sides("a.txt", base, ours, theirs), conflicted) is None


def test_code_that_python_warns_of_is_code() -> None:
    settled = settle("a.py", "", "y = '\\d'\n", "z = 1\n")
    assert settled == Resolved("y = '\\d'\nz = 1\n", ("definitions",))


@pytest.mark.parametrize("deep", ["-" * 9_999 + "1\n", "(" * 9_999 + "\n", "1" + "+1" * 9_999 + "\n"])
def test_code_that_python_cannot_read_is_refused_and_does_no_harm(deep: str) -> None:
    assert settle("a.py", "", f"x = {deep}", f"y = {deep}") is None


def test_code_with_null_bytes_is_refused_and_does_no_harm() -> None:
    conflicted = "<<<<<<< a\nx = 1\n||||||| b\n=======\ny = '\0'\n>>>>>>> c\n"
    assert resolve_file(Sides("a.py", "", "x = 1\n", "y = '\0'\n"), conflicted) is None


@pytest.mark.parametrize("deep", ["[" * 99_999 + "\n", "9" * 9_999 + "\n", '"\udcff"\n'])
@pytest.mark.parametrize("path", ["a.json", "a.toml"])
def test_data_that_cannot_be_read_does_no_harm(path: str, deep: str) -> None:
    assert settle(path, deep, f"{deep}a  b\n", f"{deep}a b\n") == Resolved(f"{deep}a  b\n", ("same",))


@pytest.mark.parametrize("marker", ["<<<<<<< x", "||||||| x", ">>>>>>> x", "<<<<<<<"])
@pytest.mark.parametrize("version", ["base", "ours", "theirs"])
def test_a_version_with_markers_of_its_own_is_refused(marker: str, version: str) -> None:
    texts = dict(zip(("base", "ours", "theirs"), ("a\n", "b\n", "b \n"), strict=True))
    texts[version] = f"{marker}\n1\n2\n3\n4\n{texts[version]}"
    assert settle("a.txt", texts["base"], texts["ours"], texts["theirs"]) is None


def test_a_conflict_that_is_written_about_is_not_settled() -> None:
    told = "<<<<<<< a\nx\n||||||| b\n=======\nx \n>>>>>>> c\n"
    assert settle("git.md", told + "a\n", told + "b\n", told + "b \n") is None


def test_a_line_of_equal_signs_is_prose_unless_it_is_part_of_the_conflict() -> None:
    head = "Chapter\n=======\n"
    assert settle("a.rst", head + "a\n", head + "b\n", head + "b \n") == Resolved(head + "b\n", ("same",))
    assert settle("a.rst", "a\n", head, head.replace("\n", " \n", 1)) is None


@pytest.mark.parametrize("missing", ["ours", "theirs"])
def test_a_file_that_a_side_deleted_is_refused(missing: str) -> None:
    versions: dict[str, str | None] = {"base": "a\n", "ours": "b\n", "theirs": "b \n"}
    conflicted = "<<<<<<< a\nb\n||||||| b\na\n=======\nb \n>>>>>>> c\n"
    assert resolve_file(Sides("a.txt", **versions), conflicted) is not None
    assert resolve_file(Sides("a.txt", **versions | {missing: None}), conflicted) is None


def test_a_file_that_both_sides_added_is_settled_like_any_other() -> None:
    conflicted = make_conflict("", "[1]\n", "[ 1 ]\n")
    assert resolve_file(Sides("a.json", None, "[1]\n", "[ 1 ]\n"), conflicted) == Resolved("[1]\n", ("same",))
    swapped = conflicted.replace("[1]", "]1[").replace("[ 1 ]", "] 1 [")
    assert resolve_file(Sides("a.json", None, "[1]\n", "[ 1 ]\n"), swapped) is None


@pytest.mark.parametrize(
    "conflicted",
    [
        "a\n", "", "<<<<<<< a\nb\n", "<<<<<<< a\nb\n=======\nb \n>>>>>>> c\n", "<<<<<<< a\n||||||| b\n>>>>>>> c\n",
        ">>>>>>> c\n", "<<<<<<< a\n<<<<<<< a\nb\n||||||| b\na\n=======\nb \n>>>>>>> c\n",
    ],
)  # fmt: skip
def test_markers_that_are_not_in_order_are_refused(conflicted: str) -> None:
    assert resolve_file(Sides("a.txt", "a\n", "b\n", "b \n"), conflicted) is None


@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_line_endings_stay_what_they_were(end: str) -> None:
    base, ours, theirs = (text.replace("\n", end) for text in ("a\nb\n", "a\nb\nc\n", "a\nb\nd\n"))
    settled = settle(".gitignore", base, ours, theirs)
    assert settled == Resolved(f"a{end}b{end}c{end}d{end}", ("set-like",))


@pytest.mark.parametrize("ours", ["a\r\nb\r\nc\r\n", "a\nb\nc\r\n"])
def test_a_side_with_other_line_endings_is_refused(ours: str) -> None:
    assert settle(".gitignore", "a\nb\n", ours, "a\nb\nd\n") is None


@pytest.mark.parametrize(
    ("ends", "expected"),
    [
        (("\n", "\n", "\n"), "\n"),
        (("", "", ""), ""),
        (("", "\n", ""), "\n"),
        (("\n", "\n", ""), ""),
        (("\r\n", "\r\n", ""), ""),
    ],
)
def test_whether_the_last_line_ends_is_merged_too(ends: tuple[str, str, str], expected: str) -> None:
    end = "\r\n" if "\r\n" in ends else "\n"
    base, ours, theirs = (f"{end}".join(text) + last for text, last in zip(("a", "ab", "ac"), ends, strict=True))
    assert settle(".gitignore", base, ours, theirs) == Resolved(end.join("abc") + expected, ("set-like",))


def test_odd_bytes_are_kept_as_they_are() -> None:
    settled = settle("CHANGELOG", "\udcff\n", "\udcff\n\udc80 a\n", "\udcff\nb\x0c\u2028c\n")
    assert settled == Resolved("\udcff\n\udc80 a\nb\x0c\u2028c\n", ("set-like",))


def test_a_file_too_large_is_refused_at_once() -> None:
    def settle_after(length: int) -> Resolved | None:
        base, ours, theirs = ("x" * length + text for text in ("\na\n", "\nb\n", "\nb \n"))
        return settle("a.txt", base, ours, theirs)

    assert settle_after(MAX_CHARACTERS // 4 - 100) is not None
    assert settle_after(MAX_CHARACTERS // 4) is None


def test_many_lines_and_many_conflicts_take_time_in_proportion() -> None:
    def measure(count: int) -> float:
        versions = [
            "".join(f"{number}{text}\n1\n2\n3\n4\n" for number in range(count)) for text in ("", " = 1", " =  1")
        ]
        conflicted = make_conflict(*versions)
        began = process_time()
        settled = resolve_file(Sides("a.txt", *versions), conflicted)
        assert settled == Resolved(versions[1], ("same",) * count)
        assert list_lost_lines(Sides("a.txt", *versions), settled.text) == []
        return process_time() - began

    few, many = min(measure(250), measure(250)), min(measure(2_000), measure(2_000))
    assert many < 8 * few * 4, f"{few:.3f} s for 250, {many:.3f} s for 2,000"


def test_what_git_leaves_in_a_tree_is_settled_as_well(tmp_path: Path) -> None:
    git(tmp_path, "init", "-q", "-b", "main")
    texts = {"base": MAIN, "ours": ONE + MAIN, "theirs": TWO + MAIN}
    for branch, text in texts.items():
        git(tmp_path, "checkout", "-q", "-b", branch, *(() if branch == "base" else ("base",)))
        (tmp_path / "a.py").write_text(text)
        git(tmp_path, "add", "a.py")
        git(tmp_path, "commit", "-q", "-m", branch)
    git(tmp_path, "config", "merge.conflictStyle", "diff3")
    argv = ("git", "-C", str(tmp_path), "merge-tree", "--write-tree", "ours", "theirs")
    merged = subprocess.run(argv, check=False, capture_output=True, text=True)
    assert merged.returncode == 1, "there is a conflict"
    tree = merged.stdout.split("\n")[0]
    conflicted = f"{git(tmp_path, 'show', f'{tree}:a.py')}\n"
    settled = resolve_file(Sides("a.py", **texts), conflicted)
    assert settled == Resolved(ONE + TWO + MAIN, ("definitions",))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\n<<<<<<< HEAD\n", True),
        ("<<<<<<<", True),
        (">>>>>>> x\r\n", True),
        ("|||||||\r\n", True),
        ("a\n=======\nb\n", False),
        (" <<<<<<< x\n", False),
        ("<<<<<<<< x\n", False),
        (">>>>>>>x\n", False),
        ("", False),
    ],
)
def test_markers_are_whole_lines_of_gits(text: str, *, expected: bool) -> None:
    assert has_markers(text) is expected


def test_lines_that_a_side_added_and_the_result_lacks_are_listed() -> None:
    sides = Sides("a", "keep\ngone\nboth\n", "keep\nboth\nmine(1,2)\nsame\n", "keep\ngone\ntheirs\r\nsame\n\n")
    assert list_lost_lines(sides, "keep\nmine( 1, 2 )\ntheirs\nsame\n") == []
    assert list_lost_lines(sides, "keep\n") == ["mine(1,2)", "same", "theirs"]
    assert list_lost_lines(Sides("a", None, "x\n", None), "") == ["x"]
    assert list_lost_lines(Sides("a", "x\n", "x\n", "x\n"), "") == [], "no side added it"


def test_a_line_added_twice_is_lost_when_it_is_there_once() -> None:
    sides = Sides("a", "x\n", "x\nx\nx\n", "x\n")
    assert list_lost_lines(sides, "x\nx\n") == ["x"]
    assert list_lost_lines(Sides("a", "x\n", "x\nx\n", ""), "x\n") == []
