"""Every way a plan can be wrong is told with its line, and all of them together."""

import os
import tempfile
from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hivekeeper.config.plans import load_plan
from hivekeeper.domain.plan import Limits, PlanSpec, RepoSpec, TaskSpec
from hivekeeper.errors import InputError
from tests.needs import NOBODY

MIB = 1 << 20


def load(directory: Path, text: str | bytes, limits: Limits | None = None) -> PlanSpec:
    path = directory / "plan.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_plan(path, limits) if limits else load_plan(path)


def problems(directory: Path, text: str | bytes) -> list[str]:
    """Load a plan that must be refused, and return what was said of it, each as `line: sentence`."""
    with pytest.raises(InputError) as caught:
        load(directory, text)
    first, *rest = str(caught.value).split("\n")
    count = f"{len(rest):,} problem{'s' if len(rest) > 1 else ''}"
    assert first == f"{directory / 'plan.yaml'}: {count}, nothing was submitted"
    return [line.removeprefix(f"{directory / 'plan.yaml'}:") for line in rest]


def task_problems(directory: Path, task: str, before: str = "") -> list[str]:
    """Refuse a plan whose only task, A, has the given extra keys; they stand on line 3."""
    return problems(directory, f"convoy: c\ntasks:\n  - {{id: A, command: 'true', {task}}}\n{before}")


def test_a_full_plan_becomes_what_it_says(tmp_path: Path) -> None:
    plan = load(
        tmp_path,
        """
convoy: auth-module
repos:
  api: {path: ../api-service, verify: pytest -q}
  lib: {path: /srv/lib, branch: trunk}
defaults: {timeout: 45m, silence: 90s, attempts: 5, priority: -2, memory: 2GiB, output_limit: 1MB}
tasks:
  - {id: AUTH-140, command: make lib, repo: lib, title: Rotate, verify: make check, output: out/lib.txt}
  - id: AUTH-141
    command: make api
    repo: api
    after: [AUTH-140]
    priority: 7
    attempts: 1
    idempotent: true
    timeout: 1h30m
    silence: 30
    memory: 1024
    output_limit: 64MiB
""",
    )
    assert plan.convoy == "auth-module"
    assert plan.repos == (
        RepoSpec("api", str(tmp_path.parent / "api-service"), "main", "pytest -q"),
        RepoSpec("lib", "/srv/lib", "trunk", None),
    )
    first, second = plan.tasks
    limits = Limits(wall_s=2700.0, silence_s=90.0, output_bytes=1_000_000, memory_bytes=2 << 30)
    assert first == TaskSpec(
        "AUTH-140", "make lib", "lib", "Rotate", (), "make check", -2, 5, ("out/lib.txt",), limits=limits
    )
    assert (second.after, second.priority, second.attempts, second.idempotent) == (("AUTH-140",), 7, 1, True)
    assert second.limits == Limits(wall_s=5400.0, silence_s=30.0, output_bytes=64 * MIB, memory_bytes=1024)


def test_the_smallest_plan_has_the_defaults_of_the_domain(tmp_path: Path) -> None:
    plan = load(tmp_path, "convoy: c\ntasks: [{id: A, command: 'true'}]\n")
    assert plan == PlanSpec("c", (TaskSpec("A", "true"),))


def test_the_hives_limits_hold_for_what_neither_task_nor_defaults_say(tmp_path: Path) -> None:
    text = "convoy: c\ndefaults: {silence: 5s}\ntasks: [{id: A, command: x, memory: 7}]\n"
    hive = Limits(1.0, 2.0, 3, 4, 5, 6, 9.0)
    assert load(tmp_path, text, hive).tasks[0].limits == Limits(1.0, 5.0, 3, 7, 5, 6, 9.0)


def test_none_lifts_a_limit_that_the_defaults_set(tmp_path: Path) -> None:
    text = (
        "convoy: c\ndefaults: {timeout: 5s, memory: 1MB}\ntasks: [{id: A, command: x, timeout: none, memory: none}]\n"
    )
    assert load(tmp_path, text).tasks[0].limits == Limits()


def test_seconds_written_in_two_ways_make_the_same_plan(tmp_path: Path) -> None:
    texts = [f"convoy: c\ntasks: [{{id: A, command: x, timeout: {said}}}]\n" for said in ("90", "90s", "1m30s", "1.5m")]
    first, *others = (load(tmp_path, text) for text in texts)
    assert all(plan == first for plan in others)


def test_a_repository_path_is_relative_to_the_plan_and_not_to_where_one_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plans").mkdir()
    text = "convoy: c\nrepos: {a: {path: ../code}, h: {path: ~/code}}\ntasks: [{id: A, command: x}]\n"
    (tmp_path / "plans" / "plan.yaml").write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", "/home/bee")
    paths = [repo.path for repo in load_plan(Path("plans/plan.yaml")).repos]
    assert paths == [str(tmp_path / "code"), "/home/bee/code"]


def test_an_alias_may_repeat_what_was_written_once(tmp_path: Path) -> None:
    text = "convoy: c\ntasks: [{id: A, command: &make make all}, {id: B, command: *make}]\n"
    assert [task.command for task in load(tmp_path, text).tasks] == ["make all", "make all"]


def test_a_date_and_a_clock_time_are_text_as_they_were_written(tmp_path: Path) -> None:
    tasks = load(tmp_path, "convoy: c\ntasks: [{id: 2024-01-01, command: x, title: 12:30}]\n").tasks
    assert (tasks[0].id, tasks[0].title) == ("2024-01-01", "12:30")


def test_a_byte_order_mark_and_windows_line_ends_are_accepted(tmp_path: Path) -> None:
    text = b"\xef\xbb\xbfconvoy: c\r\ntasks:\r\n- id: A\r\n  command: x\r\n"
    assert load(tmp_path, text).tasks == (TaskSpec("A", "x"),)


def test_a_missing_file_is_said_to_be_missing(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there is no such file; check the name"):
        load_plan(tmp_path / "plan.yaml")


def test_a_directory_instead_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_plan(tmp_path)


def test_a_file_without_permission_is_refused(tmp_path: Path) -> None:
    (tmp_path / "plan.yaml").touch(mode=0o000)
    me = os.geteuid()
    try:
        if me == 0:  # who may read everything
            os.seteuid(NOBODY)
        with pytest.raises(InputError, match="cannot be read: Permission denied"):
            load_plan(tmp_path / "plan.yaml")
    finally:
        os.seteuid(me)


def test_a_file_name_no_system_can_have_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read: "):
        load_plan(tmp_path / "a\0b")


def test_a_file_over_sixteen_mebibytes_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, b"#" * (16 * MIB + 1)) == [" larger than 16 MiB; this is probably not the file you meant"]


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path: Path) -> None:
    assert problems(tmp_path, b"convoy: c\ntitle: \xff\n") == ["2: not UTF-8 text; save the file as UTF-8"]


def test_a_character_no_yaml_may_hold_is_refused_with_the_line(tmp_path: Path) -> None:
    expected = ["2: the character '\\x07' is not allowed in YAML; remove it"]
    assert problems(tmp_path, "convoy: é\ntitle: \a\n") == expected


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, "convoy: c\ntasks:\n  - id: A\n   command: x\n")
    assert said.startswith("4: not YAML: ")
    assert "indentation" in said


@pytest.mark.parametrize("text", ["", "\n\n", "# only a comment\n", "---\n", "~\n"])
def test_an_empty_file_is_said_to_be_empty(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == [" the file is empty"]


@pytest.mark.parametrize(("text", "what"), [("- a\n", "a list"), ("hello\n", "'hello'"), ("5\n", "5")])
def test_a_top_that_is_not_a_mapping_is_refused(tmp_path: Path, text: str, what: str) -> None:
    assert problems(tmp_path, text) == [f"1: the top must be a mapping (key: value), not {what}"]


def test_a_second_document_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "a: 1\n---\nb: 2\n") == [
        "2: a second document starts here ('---'); put each in a file of its own"
    ]


def test_a_key_written_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    text = "convoy: c\ntasks:\n  - id: A\n    command: x\n    command: y\n"
    assert problems(tmp_path, text) == ["5: key 'command' is already used on line 4; keep one"]


@pytest.mark.parametrize(("key", "shown"), [("1", "'1'"), ("yes", "'yes'"), ("? [a]\n", "a list or mapping")])
def test_a_key_that_is_not_text_is_refused(tmp_path: Path, key: str, shown: str) -> None:
    text = f"convoy: c\ntasks: [{{id: A, command: x}}]\n{key}: 5\n"
    assert problems(tmp_path, text) == [f"3: a key must be text, not {shown}; put it in quotes"]


def test_a_merge_key_is_refused_with_what_to_do_instead(tmp_path: Path) -> None:
    text = "convoy: c\ntasks:\n  - &a {id: A, command: x}\n  - {id: B, command: x, <<: *a}\n"
    expected = ["4: merging with '<<' is not supported; use 'defaults', or write the keys out"]
    assert problems(tmp_path, text) == expected


@pytest.mark.parametrize("value", ["!!python/name:os.system x", "!mine {a: 1}", "!!binary aGk=", "!!set {a}"])
def test_a_tag_is_refused_and_never_obeyed(tmp_path: Path, value: str) -> None:
    (said,) = task_problems(tmp_path, f"title: {value}")
    assert said.startswith("3: the tag '")
    assert said.endswith("is not supported; remove it")


@pytest.mark.parametrize("value", ["!!int x", "!!int ''", "!!bool x", "!!float x", "1" * 5000])
def test_a_scalar_that_is_not_what_its_tag_says_is_refused(tmp_path: Path, value: str) -> None:
    (said,) = task_problems(tmp_path, f"priority: {value}")
    assert "is not a valid" in said


def test_a_key_without_a_value_is_refused_once(tmp_path: Path) -> None:
    text = "convoy: c\ntasks:\n  - id: A\n    command:\n    title:\n"
    assert problems(tmp_path, text) == [
        "4: 'command' has no value; give it one or remove it",
        "5: 'title' has no value; give it one or remove it",
    ]


LAUGHS = [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}' if i else 'ha'] * 10)}]" for i in range(10)]
KEY = f"a: &a {{? {'x' * MIB} : 1}}\nb: [{', '.join(['*a'] * 20)}]\n"
LONG = f"a: &a '{'x' * MIB}'\nb: [{', '.join(['*a'] * 20)}]\n"


@pytest.mark.parametrize(
    "text", ["\n".join(LAUGHS), LONG, KEY, "convoy: &a [*a]\n"], ids=["laughs", "text", "key", "itself"]
)
def test_aliases_that_multiply_beyond_measure_are_refused(tmp_path: Path, text: str) -> None:
    (said,) = problems(tmp_path, text)
    assert said.endswith("aliases (*) make this too large to read; use fewer of them")


@pytest.mark.parametrize("text", ["a: " + "[" * 100_000, "- " * 100_000, "? " * 100_000, "{a: " * 500])
def test_nesting_hundreds_of_levels_deep_is_refused(tmp_path: Path, text: str) -> None:
    (said,) = problems(tmp_path, text)
    assert "nested more than 64 levels deep" in said or "not YAML" in said


def test_more_values_than_any_plan_has_are_refused(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, "a: [" + "1," * 200_001 + "]")
    assert said == "1: more than 200,000 values; split the file"


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_right_one(tmp_path: Path) -> None:
    text = "convoy: c\ntasks:\n  - id: A\n    comand: x\n"
    assert problems(tmp_path, text) == ["4: unknown key 'comand' in task 'A'; did you mean 'command'?"]


def test_an_unknown_key_like_no_other_is_answered_with_those_there_are(tmp_path: Path) -> None:
    text = "convoy: c\nzzz: 1\nrepos: {a: {path: x, qqq: 1}}\ntasks: [{id: A, command: x}]\n"
    known = "path, url, branch, verify, setup, keep, lock, backup, publish, gate, regenerate"
    assert problems(tmp_path, text) == [
        "2: unknown key 'zzz' in the plan; known here: convoy, accept, budget, repos, defaults, tasks",
        f"3: unknown key 'qqq' in repo 'a'; known here: {known}",
    ]


def test_verify_is_not_a_default(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, "convoy: c\ndefaults: {verify: x}\ntasks: [{id: A, command: x}]\n")
    assert said.startswith("2: unknown key 'verify' in 'defaults'; known here: runner, timeout, ")


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("title: 5", "'title' in task 'A' must be text, not 5; put it in quotes"),
        ("title: no", "'title' in task 'A' must be text, not false; put it in quotes"),
        ("title: [a]", "'title' in task 'A' must be text, not a list; put it in quotes"),
        ("after: B", "'after' in task 'A' must be a list such as [A, B], not 'B'"),
        ("after: [5]", "item 1 of 'after' in task 'A' must be text, not 5; put it in quotes"),
        ("attempts: many", "'attempts' in task 'A' must be a whole number, not 'many'"),
        ("attempts: 2.5", "'attempts' in task 'A' must be a whole number, not 2.5"),
        ("attempts: true", "'attempts' in task 'A' must be a whole number, not true"),
        ("idempotent: maybe", "'idempotent' in task 'A' must be true or false, not 'maybe'"),
        ("attempts: 0", "'attempts' in task 'A' must be at least 1, not 0"),
        ("attempts: 101", "'attempts' in task 'A' must be at most 100, not 101"),
        ("priority: -1001", "'priority' in task 'A' must be at least -1000, not -1001"),
        ("priority: 1001", "'priority' in task 'A' must be at most 1000, not 1001"),
        ("timeout: 0", "'timeout' in task 'A' must be more than 0 and at most 365d, not 0"),
        ("timeout: -5", "'timeout' in task 'A' must be more than 0 and at most 365d, not -5"),
        ("silence: 0s", "'silence' in task 'A' must be more than 0 and at most 365d, not '0s'"),
        ("silence: 366d", "'silence' in task 'A' must be more than 0 and at most 365d, not '366d'"),
        ("timeout: .nan", "'timeout' in task 'A' must be more than 0 and at most 365d, not that number"),
        ("timeout: .inf", "'timeout' in task 'A' must be more than 0 and at most 365d, not that number"),
        ("memory: 0", "'memory' in task 'A' must be at least 1 byte and at most 1024TiB, not 0"),
        ("memory: -1", "'memory' in task 'A' must be at least 1 byte and at most 1024TiB, not -1"),
        (
            f"memory: 0x{'f' * 9999}",
            "'memory' in task 'A' must be at least 1 byte and at most 1024TiB, not that number",
        ),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(tmp_path: Path, said: str, told: str) -> None:
    assert task_problems(tmp_path, said) == [f"3: {told}"]


@pytest.mark.parametrize("said", ["soon", "1:30", "5 m", "1m1h", "''", "true", "[1]", "45M"])
def test_a_duration_that_is_none_is_answered_with_how_to_write_one(tmp_path: Path, said: str) -> None:
    (told,) = task_problems(tmp_path, f"timeout: {said}")
    assert "'timeout' in task 'A' must be a duration such as 45m, 90s, 1h30m or a number of seconds, not " in told


@pytest.mark.parametrize("said", ["lots", "1.5", "64 M", "5PB", "''", "false", "{}"])
def test_a_size_that_is_none_is_answered_with_how_to_write_one(tmp_path: Path, said: str) -> None:
    (told,) = task_problems(tmp_path, f"output_limit: {said}")
    assert "'output_limit' in task 'A' must be a size such as 64MB, 2GiB or a number of bytes, not " in told


@pytest.mark.parametrize(("part", "where"), [("repos", "5"), ("defaults", "[a]")])
def test_a_part_that_is_not_a_mapping_is_refused(tmp_path: Path, part: str, where: str) -> None:
    (told,) = problems(tmp_path, f"convoy: c\n{part}: {where}\ntasks: [{{id: A, command: x}}]\n")
    assert told.startswith(f"2: '{part}' in the plan must be a mapping (key: value), not ")


def test_an_item_that_is_not_a_task_or_a_repository_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "convoy: c\nrepos: {a: ../a}\ntasks:\n  - make\n") == [
        "2: 'a' in 'repos' must be a mapping (key: value), not '../a'",
        "4: item 1 of 'tasks' in the plan must be a mapping (key: value), not 'make'",
    ]


def test_everything_required_that_is_missing_is_named(tmp_path: Path) -> None:
    assert problems(tmp_path, "repos: {a: {}}\n") == [
        "1: the plan has no 'convoy'; add it",
        "1: the plan has no 'tasks'; add it",
        "1: repo 'a' has no 'path' and no 'url'; add one",
    ]
    assert problems(tmp_path, "convoy: c\ntasks:\n  - {id: A}\n  - {command: x}\n") == [
        "3: task 'A' has no 'command' and no 'prompt'; add one",
        "4: task 2 of the list has no 'id'; add it",
    ]


def test_a_plan_with_an_empty_list_of_tasks_is_refused(tmp_path: Path) -> None:
    expected = ["2: 'tasks' in the plan is empty; it needs at least one item"]
    assert problems(tmp_path, "convoy: c\ntasks: []\n") == expected


def test_a_file_promised_inside_of_another_is_refused(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "outputs: [out, out/a]")
    said = "'out/a' of task 'A' is inside 'out', which is promised by task 'A' on line 3; let one of them promise it"
    assert told == [f"3: {said}"]


@pytest.mark.parametrize("name", ["My-Convoy", "-x", "a/b", "''", "a.lock", "é", "a" * 65])
def test_a_name_outside_the_allowed_set_is_refused_with_the_rule(tmp_path: Path, name: str) -> None:
    text = f"convoy: {name}\nrepos: {{{name}: {{path: x}}}}\ntasks: [{{id: A, command: x}}]\n"
    convoy, repo = problems(tmp_path, text)
    assert convoy.startswith("1: 'convoy' in the plan must be lower-case letters, digits")
    assert repo.startswith("2: the name of repo '")
    assert "must be lower-case letters, digits" in repo


@pytest.mark.parametrize("name", ["a b", "../x", "a..b", "a.", "A.lock", "''", "'-x'"])
def test_a_task_id_outside_the_allowed_set_is_refused_with_the_rule(tmp_path: Path, name: str) -> None:
    (told,) = problems(tmp_path, f"convoy: c\ntasks:\n  - {{id: {name}, command: x}}\n")
    assert "must be letters, digits, '.', '_' and '-', at most 64" in told


def test_a_task_id_used_twice_is_refused_with_both_lines(tmp_path: Path) -> None:
    text = "convoy: c\ntasks:\n  - {id: A, command: x}\n  - {id: A, command: y}\n"
    assert problems(tmp_path, text) == ["4: the id 'A' is already used on line 3; rename one of the two"]


def test_a_dependency_written_twice_is_refused(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "after: [B, B]", before="  - {id: B, command: x}\n")
    assert told == ["3: 'B' is twice in 'after' of task 'A'; keep one"]


def test_an_unknown_dependency_is_answered_with_the_nearest_task(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "after: [AUTH-14]", before="  - {id: AUTH-140, command: x}\n")
    assert told == ["3: unknown task 'AUTH-14' in 'after' of task 'A'; did you mean 'AUTH-140'?"]


def test_a_task_that_waits_for_itself_is_refused(tmp_path: Path) -> None:
    assert task_problems(tmp_path, "after: [A]") == ["3: task 'A' waits for itself; remove it from 'after'"]


def test_tasks_that_wait_for_each_other_are_shown_as_a_ring(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "after: [B]", before="  - {id: B, command: x, after: [A]}\n")
    assert told == ["3: tasks wait for each other: A -> B -> A; remove one 'after'"]


def test_two_rings_are_both_told_and_a_long_one_is_shortened(tmp_path: Path) -> None:
    long = [f"  - {{id: T{i}, command: x, after: [T{(i + 1) % 5000}]}}" for i in range(5000)]
    short = ["  - {id: A, command: x, after: [B]}", "  - {id: B, command: x, after: [A]}"]
    first, second = problems(tmp_path, "\n".join(["convoy: c", "tasks:", *short, *long]))
    assert "A -> B -> A" in first
    assert second.startswith("5: tasks wait for each other: T0 -> T1 -> T2 -> T3 -> T4 -> (4991 more) -> T4996")


def test_an_unknown_repository_is_answered_with_the_nearest_one(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "repo: backand", before="repos: {backend: {path: x}}\n")
    assert told == ["3: unknown repo 'backand' in task 'A'; did you mean 'backend'?"]


def test_a_repository_in_a_plan_without_any_is_refused(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "repo: api")
    assert told == ["3: unknown repo 'api' in task 'A'; add it to the 'repos' of a plan, with its path"]


def test_verify_without_a_repository_is_refused(tmp_path: Path) -> None:
    told = task_problems(tmp_path, "verify: make check")
    assert told == ["3: task 'A' has 'verify' but no 'repo' to run it in; add 'repo' or remove 'verify'"]


@pytest.mark.parametrize("command", ["''", "'  '", '"\\n"'])
def test_an_empty_command_is_refused(tmp_path: Path, command: str) -> None:
    (told,) = problems(tmp_path, f"convoy: c\ntasks:\n  - id: A\n    command: {command}\n")
    assert told.startswith("4: 'command' in task 'A' must not be blank; it is ")


def test_a_nul_byte_in_a_command_is_refused(tmp_path: Path) -> None:
    text = 'convoy: c\ntasks: [{id: A, command: "a\\0b"}]\n'
    assert problems(tmp_path, text) == ["2: 'a\\x00b' contains a NUL byte or half a character; remove it"]


@pytest.mark.parametrize(
    "output",
    ["/etc/passwd", "../x", "a/../../x", ".", "''", ".hive/ledger.db", "./hive.toml", ".git/config", '"a\\nb"'],
)
@pytest.mark.parametrize("key", ["output: {}", "outputs: [{}]"])
def test_an_output_that_leaves_the_hive_directory_or_is_the_hives_own_is_refused(
    tmp_path: Path, key: str, output: str
) -> None:
    (told,) = task_problems(tmp_path, key.format(output))
    rule = "a relative path inside the hive directory, without '..' or '.git', not in '.hive' and not 'hive.toml'"
    assert told.startswith("3: task 'A' cannot promise '")
    assert told.endswith(f"'; an output is {rule}")


def test_all_problems_are_told_together_in_the_order_of_the_file(tmp_path: Path) -> None:
    told = problems(
        tmp_path,
        """\
convoy: Big
tasks:
  - id: A
    comand: x
    after: [B, C]
  - id: B
    command: x
    command: y
    after: [A]
    attempts: 0
""",
    )
    assert [line.split(":")[0] for line in told] == ["1", "4", "5", "5", "8", "10"]


def test_thousands_of_unknown_dependencies_are_told_in_reasonable_time(tmp_path: Path) -> None:
    tasks = [f"  - {{id: task-{i}, command: x, after: [tusk-{i}]}}" for i in range(4000)]
    told = problems(tmp_path, "\n".join(["convoy: c", "tasks:", *tasks]))
    assert len(told) == 4000
    assert told[0].endswith("did you mean 'task-0'?")


def test_what_is_shown_of_a_value_is_short_and_cannot_move_the_cursor(tmp_path: Path) -> None:
    long = f'"\\e[2J{"x" * 500}"'
    told = task_problems(
        tmp_path, f"repo: {long}, after: [{long}]", before=f"  - {{id: {long}, command: x, after: [A]}}"
    )
    assert "\x1b" not in "".join(told)
    assert max(map(len, told)) < 300


def never_fails_otherwise(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "plan.yaml")
        path.write_bytes(text)
        try:
            load_plan(path, runners=("scripted",))
        except InputError as error:
            said = str(error)
        else:
            return
    assert ", nothing was submitted\n" in said


KEYS = [
    *("convoy", "repos", "defaults", "tasks", "path", "branch", "verify", "id", "command", "repo", "title", "after"),
    *("priority", "attempts", "timeout", "silence", "memory", "output_limit", "output", "idempotent"),
    *("accept", "url", "setup", "keep", "lock", "backup", "prompt", "runner", "agent", "strengths", "paths", "outputs"),
    *("budget", "tokens", "money", "processes", "disk"),
]
WORDS = st.sampled_from([*KEYS, "A", "B", "main", "45m", "2GiB", "none", "../x"])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8) | WORDS | st.dates() | st.binary()
)
TREES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(max_size=4) | SCALARS, inner, max_size=6)
    ),
    max_leaves=25,
)
TASKS = st.lists(st.dictionaries(WORDS, TREES, max_size=8), max_size=4)
SYNTAX = st.lists(st.sampled_from([*"-?:,[]{}#&*!|>'\"%@` \n\tab0~=<.", "!!", "<<", "\\0", "---", "é"]), max_size=40)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=200))
def test_any_bytes_load_or_are_refused(text: bytes) -> None:
    never_fails_otherwise(text)


@settings(deadline=None, max_examples=300)
@given(SYNTAX)
def test_any_yaml_punctuation_loads_or_is_refused(text: list[str]) -> None:
    never_fails_otherwise(("convoy: c\ntasks: " + "".join(text)).encode())


@settings(deadline=None, max_examples=100)
@given(TREES | st.fixed_dictionaries({"convoy": SCALARS, "tasks": TASKS, "repos": TREES, "defaults": TREES}))
def test_any_structure_loads_or_is_refused(tree: object) -> None:
    never_fails_otherwise(yaml.safe_dump(tree, allow_unicode=False).encode())
