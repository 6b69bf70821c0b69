"""What is told of a plan before it runs: steps, possible conflicts and commands."""

from fnmatch import fnmatchcase

from hypothesis import given, settings
from hypothesis import strategies as st

from hivekeeper.domain.picture import (
    MAX_COMPARED,
    Clash,
    Command,
    find_clashes,
    find_steps,
    list_commands,
    may_overlap,
)
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec, find_stray


def is_path(text: str) -> bool:
    return all(text.split("/"))


PATTERNS = st.text("ab/*?", min_size=1, max_size=5).filter(is_path)


def task(name: str, after: str = "", paths: tuple[str, ...] = (), repo: str = "app") -> TaskSpec:
    return TaskSpec(name, repo=repo, prompt="x", runner="claude", after=tuple(after.split()), paths=paths)


def test_a_task_is_one_step_behind_the_last_that_it_waits_for() -> None:
    tasks = [task("D", "B C"), task("A"), task("B", "A"), task("C"), task("E", "D")]
    assert [[one.id for one in step] for step in find_steps(tasks)] == [["A", "C"], ["B"], ["D"], ["E"]]


def test_a_chain_of_ten_thousand_tasks_has_as_many_steps() -> None:
    tasks = [task(f"T{n}", f"T{n - 1}" if n else "") for n in range(10_000)]
    assert len(find_steps(tasks[::-1])) == 10_000


def test_tasks_that_may_change_the_same_file_clash_unless_one_waits_for_the_other() -> None:
    tasks = [
        task("A", paths=("src/auth",)),
        task("B", paths=("./src//auth/login.py", "docs")),
        task("C", paths=("src/auth",)),
        task("D", "A", paths=("src/*.py",)),
        task("E", "D", paths=("src/auth",)),
        task("F", paths=("src/auth",), repo="other"),
    ]
    found = {clash.paths: clash.tasks for clash in find_clashes(tasks) or ()}
    assert found == {
        ("src/auth",): ("A", "C", "E"),
        ("src/auth", "src/auth/login.py"): ("A", "B", "C", "E"),
        ("src/*.py", "src/auth"): ("C", "D"),
        ("src/*.py", "src/auth/login.py"): ("B", "D"),
    }


def test_tasks_that_wait_for_each_other_by_way_of_others_do_not_clash() -> None:
    assert find_clashes([task("A", paths=("x",)), task("B", "A"), task("C", "B", paths=("x",))]) == []


def test_of_too_many_tasks_nothing_is_told() -> None:
    assert find_clashes([task(f"T{n}", paths=("x",)) for n in range(MAX_COMPARED + 1)]) is None
    assert find_clashes([task(f"T{n}", paths=("x",)) for n in range(1000)]) is None, "half a million pairs"


@settings(max_examples=300)
@given(PATTERNS, PATTERNS, st.text("ab/", min_size=1, max_size=6).filter(is_path))
def test_two_paths_overlap_if_some_file_is_allowed_by_both(one: str, other: str, file: str) -> None:
    if find_stray([file], [one]) is None and find_stray([file], [other]) is None:
        assert may_overlap(one, other)
        assert find_clashes([task("A", paths=(one,)), task("B", paths=(other,))]) != []


@settings(max_examples=300)
@given(st.text("ab*?.", min_size=1, max_size=5), st.text("ab", min_size=1, max_size=4))
def test_a_file_overlaps_exactly_the_paths_that_allow_it(pattern: str, name: str) -> None:
    assert may_overlap(pattern, f"{name}.b") == fnmatchcase(f"{name}.b", pattern)


def test_paths_apart_do_not_overlap() -> None:
    for one, other in (("src", "srcs"), ("src/*.py", "src/a.md"), ("a?c", "abd"), ("*.py", "*.md"), ("a/*", "b/*")):
        assert not may_overlap(one, other), (one, other)
    assert may_overlap("*.py", "tools")
    assert may_overlap("v1.2", "v1.2/a.py"), "a directory too can have a dot in its name"
    assert may_overlap("[ab].py", "b.py")


def test_a_pattern_too_long_to_compare_may_overlap() -> None:
    assert may_overlap("a" * 2000 + "*", "a" * 2000 + "b")


def test_every_command_of_a_plan_is_listed() -> None:
    repos = (
        RepoSpec("app", "/app", verify="make test", setup="make deps", regenerate={"uv.lock": "uv lock"}),
        RepoSpec("lib", "/lib", verify="pytest"),
    )
    tasks = (task("A"), TaskSpec("B", command="rm -rf build", repo="app", verify="true"))
    plan = PlanSpec("c", tasks, repos, accept="make all")
    assert list_commands(plan) == [
        Command("the plan", "accept", "make all"),
        Command("repo app", "setup", "make deps"),
        Command("repo app", "verify", "make test"),
        Command("repo app", "regenerate uv.lock", "uv lock"),
        Command("repo lib", "verify", "pytest"),
        Command("task B", "command", "rm -rf build"),
        Command("task B", "verify", "true"),
    ]


def test_a_clash_names_one_path_once() -> None:
    assert find_clashes([task("A", paths=("x", "x/")), task("B", paths=("./x",))]) == [Clash("app", ("x",), ("A", "B"))]
