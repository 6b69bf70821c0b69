"""Prompts, runners, repositories elsewhere, budgets, outputs: what a plan may say of them, and what it may not."""

from dataclasses import asdict
from pathlib import Path

import pytest

from hivekeeper.commands.plans import submit_plan, to_event
from hivekeeper.config.plans import load_plan, read_prompt
from hivekeeper.domain.events import decode_body, encode_body
from hivekeeper.domain.plan import Limits, PlanSpec, RepoSpec, TaskSpec, is_url
from hivekeeper.errors import InputError
from hivekeeper.store import queries
from hivekeeper.store.ledger import ByPerson, create_ledger, open_ledger

RUNNERS = ("claude", "codex", "scripted")
EVERY_KEY = """
convoy: auth
accept: make acceptance
repos:
  api: {path: ../api, branch: trunk, verify: pytest -q, setup: uv sync, keep: [.venv], lock: [uv.lock], backup: ../safe}
  lib: {url: "git@host:auth/lib.git", backup: "ssh://bee@safe.example/lib.git"}
  web: {url: "https://host.example:8443/web.git"}
defaults:
  runner: claude
  timeout: 45m
  silence: 10m
  attempts: 2
  priority: 1
  output_limit: 1MiB
  memory: 2GiB
  processes: 50
  disk: 5GiB
  budget: {tokens: 200000, money: 5}
tasks:
  - id: A
    repo: lib
    title: Rotate tokens
    prompt: |
      Add refresh-token rotation.
      Mind the clock.
    agent: auth-specialist
    paths: [src/**/*.py, docs]
    verify: pytest -q tests
    idempotent: true
  - id: B
    repo: api
    after: [A]
    prompt: Use it
    runner: codex
    strengths: [oauth, sql]
    budget: {money: 0.5}
    priority: 5
    attempts: 1
    timeout: none
    silence: 30
    output_limit: none
    memory: none
    processes: none
    disk: none
  - {id: C, command: make report, outputs: [out/report.md, ./out//figures.csv]}
  - {id: D, command: make table, output: out/table.csv}
"""
LIMITS = Limits(2700.0, 600.0, 1 << 20, 2 << 30, 50, 5 << 30)
BUDGET = {"tokens": 200_000, "money": 5.0}


def write(directory: Path, text: str) -> Path:
    path = directory / "plan.yaml"
    path.write_text(text)
    return path


def problems(directory: Path, text: str) -> list[str]:
    """Load a plan that must be refused, and return what was said of it, each as `line: sentence`."""
    with pytest.raises(InputError) as caught:
        load_plan(write(directory, text), runners=RUNNERS)
    return [line.removeprefix(f"{directory / 'plan.yaml'}:") for line in str(caught.value).split("\n")[1:]]


def expect(directory: Path) -> PlanSpec:
    repos = (
        RepoSpec(
            "api",
            str(directory.parent / "api"),
            "trunk",
            "pytest -q",
            "uv sync",
            (".venv",),
            ("uv.lock",),
            str(directory.parent / "safe"),
        ),
        RepoSpec("lib", "git@host:auth/lib.git", backup="ssh://bee@safe.example/lib.git"),
        RepoSpec("web", "https://host.example:8443/web.git"),
    )
    first = TaskSpec(
        "A",
        repo="lib",
        title="Rotate tokens",
        verify="pytest -q tests",
        priority=1,
        attempts=2,
        idempotent=True,
        limits=LIMITS,
        prompt="Add refresh-token rotation.\nMind the clock.\n",
        runner="claude",
        agent="auth-specialist",
        paths=("src/**/*.py", "docs"),
        budget=BUDGET,
    )
    second = TaskSpec(
        "B",
        repo="api",
        after=("A",),
        priority=5,
        attempts=1,
        limits=Limits(None, 30.0, None, None, None, None),
        prompt="Use it",
        runner="codex",
        strengths=("oauth", "sql"),
        budget={"money": 0.5},
    )
    common = {"priority": 1, "attempts": 2, "limits": LIMITS, "budget": BUDGET}
    third = TaskSpec("C", "make report", outputs=("out/report.md", "./out//figures.csv"), **common)  # type: ignore[arg-type]
    fourth = TaskSpec("D", "make table", outputs=("out/table.csv",), **common)  # type: ignore[arg-type]
    limits = {name: value for name, value in asdict(LIMITS).items() if name != "grace_s"}
    defaults = {"runner": "claude", "attempts": 2, "priority": 1, "budget": BUDGET, "limits": limits}
    return PlanSpec("auth", (first, second, third, fourth), repos, "make acceptance", defaults=defaults)


def test_a_plan_with_every_key_becomes_what_it_says(tmp_path: Path) -> None:
    assert load_plan(write(tmp_path, EVERY_KEY), runners=RUNNERS) == expect(tmp_path)


def test_every_key_of_a_task_survives_its_event_as_text(tmp_path: Path) -> None:
    for spec in expect(tmp_path).tasks:
        body = to_event("auth", spec)
        assert decode_body(body.kind, encode_body(body)) == body
        assert body.output == ("\n".join(spec.outputs) or None)
        assert body.details == {
            name: list(value) if isinstance(value, tuple) else value
            for name in ("runner", "agent", "strengths", "paths", "budget")
            if (value := getattr(spec, name))
        }


def test_allowed_paths_are_kept_as_git_writes_them() -> None:
    spec = TaskSpec("A", "true", repo="r", paths=("./src//lib", "docs/", "*.md"))
    assert to_event("c", spec).details == {"paths": ["src/lib", "docs", "*.md"]}


def test_every_key_of_a_plan_is_found_again_in_the_tables_and_the_same_plan_again_adds_nothing(tmp_path: Path) -> None:
    plan = load_plan(write(tmp_path, EVERY_KEY), runners=RUNNERS)
    create_ledger(tmp_path / "ledger.db")
    ledger = open_ledger(tmp_path / "ledger.db")
    with ledger.write(ByPerson("ann")) as tx:
        submit_plan(tx, plan)
    with ledger.read() as connection:
        convoy = queries.find_convoy(connection, "auth")
        assert convoy is not None
        assert convoy.accept == plan.accept
        for spec in plan.repos:
            row = queries.find_repo(connection, spec.name)
            assert row is not None
            assert {name: getattr(row, name) for name in asdict(spec)} == {
                name: getattr(spec, name) for name in asdict(spec)
            }
        for task in plan.tasks:
            found = queries.find_task(connection, f"auth/{task.id}")
            assert found is not None
            details = found.get_details()
            again = TaskSpec(
                id=found.id,
                command=found.command,
                repo=found.repo,
                title=found.title,
                after=tuple(key.removeprefix("auth/") for key in queries.list_predecessors(connection, found.key)),
                verify=found.verify,
                priority=found.priority,
                attempts=found.attempts_planned,
                outputs=found.outputs,
                idempotent=bool(found.idempotent),
                limits=Limits(**found.get_limits()),
                prompt=queries.find_prompt(connection, found.key),
                runner=details.get("runner", ""),
                agent=details.get("agent"),
                strengths=tuple(details.get("strengths", ())),
                paths=tuple(details.get("paths", ())),
                budget=details.get("budget", {}),
            )
            assert again == task
    with ledger.write(ByPerson("ann")) as tx:
        submitted = submit_plan(tx, plan)
    assert (submitted.added, submitted.known, submitted.unchanged_because) == (0, 4, ())
    ledger.close()


def test_a_prompt_of_five_megabytes_loads(tmp_path: Path) -> None:
    text = "tell me: everything # now\n" * 200_000
    indented = "".join(f"      {line}\n" for line in text.splitlines())
    path = write(tmp_path, f"convoy: c\ntasks:\n  - id: A\n    runner: claude\n    prompt: |\n{indented}")
    assert len(text) > 5_000_000
    assert load_plan(path, runners=RUNNERS).tasks[0].prompt == text


def test_whoever_replaces_the_runners_may_load_a_plan_for_any(tmp_path: Path) -> None:
    path = write(tmp_path, "convoy: c\ntasks: [{id: A, prompt: x, runner: theirs}]\n")
    assert load_plan(path).tasks[0].runner == "theirs"


TASK = "convoy: c\ntasks:\n  - id: A\n    {}\n    {}\n"


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("command: x", "prompt: y"), "5: task 'A' has both 'command' and 'prompt'; keep one"),
        (("title: x", "idempotent: true"), "3: task 'A' has no 'command' and no 'prompt'; add one"),
        (
            ("prompt: x", "title: y"),
            (
                "3: task 'A' has a 'prompt' but no 'runner' to give it to; add one to the task or to 'defaults' "
                "(known: claude, codex, scripted)"
            ),
        ),
        (("prompt: x", "runner: cluade"), "5: unknown runner 'cluade' in task 'A'; did you mean 'claude'?"),
        (
            ("prompt: x", "runner: zzz"),
            (
                "5: unknown runner 'zzz' in task 'A'; known here: claude, codex, scripted. Others are added to "
                "hive.toml: [runners.NAME]"
            ),
        ),
        (("prompt: x", "runner: 5"), "5: 'runner' in task 'A' must be a runner's name or a list of them, not 5"),
        (("command: x", "runner: claude"), "5: task 'A' has a 'command', which takes no 'runner'; remove it"),
        (
            ("command: x", "paths: [src]"),
            "5: task 'A' has 'paths' but no 'repo' to find them in; add 'repo' or remove ",
        ),
        (("command: x", "outputs: out"), "5: 'outputs' in task 'A' must be a list such as [A, B], not 'out'"),
        (("command: x", "agent: Ann"), "5: 'agent' in task 'A' must be lower-case letters"),
        (("command: x", "strengths: [ok, 'no no']"), "5: item 2 of 'strengths' in task 'A' must be lower-case letters"),
        (("command: x", "budget: 5"), "5: 'budget' in task 'A' must be a mapping (key: value), not 5"),
        (("command: x", "budget: {tokens: 0}"), "5: 'tokens' in 'budget' of task 'A' must be at least 1, not 0"),
        (
            ("command: x", "budget: {tokens: 1.5}"),
            "5: 'tokens' in 'budget' of task 'A' must be a whole number, not 1.5",
        ),
        (("command: x", "budget: {money: 0}"), "5: 'money' in 'budget' of task 'A' must be more than 0, not 0"),
        (("command: x", "budget: {money: -1.5}"), "5: 'money' in 'budget' of task 'A' must be more than 0, not -1.5"),
        (("command: x", "budget: {money: lots}"), "5: 'money' in 'budget' of task 'A' must be a number, not 'lots'"),
        (
            ("command: x", "budget: {money: .nan}"),
            "5: 'money' in 'budget' of task 'A' must be at most 1000000000, not that number",
        ),
        (("command: x", "budget: {money: .inf}"), "5: 'money' in 'budget' of task 'A' must be at most 1000000000, not"),
        (
            ("command: x", "budget: {token: 5}"),
            "5: unknown key 'token' in 'budget' of task 'A'; did you mean 'tokens'?",
        ),
        (
            ("command: x", "processes: 0"),
            "5: 'processes' in task 'A' must be a whole number from 1 to 1,000,000, not 0",
        ),
        (("command: x", "disk: much"), "5: 'disk' in task 'A' must be a size such as 64MB, 2GiB or a number of bytes"),
        (
            ("command: x", "outputs: [a, ./a]"),
            "5: './a' of task 'A' is already promised by task 'A' on line 5; keep one",
        ),
        (("prompt: ' '", "runner: claude"), "4: 'prompt' in task 'A' must not be blank"),
    ],
)
def test_a_wrong_task_is_told_with_its_line(tmp_path: Path, lines: tuple[str, str], told: str) -> None:
    (said,) = problems(tmp_path, TASK.format(*lines))
    assert said.startswith(told)


@pytest.mark.parametrize(
    ("lines", "told"),
    [
        (("agent: a", "strengths: [b]"), "6: task 'A' has both 'agent' and 'strengths'; keep one"),
        (("output: a", "outputs: [b]"), "6: task 'A' has both 'output' and 'outputs'; keep one"),
    ],
)
def test_two_keys_for_one_thing_are_refused(tmp_path: Path, lines: tuple[str, str], told: str) -> None:
    assert problems(tmp_path, TASK.format("command: x", "\n    ".join(lines))) == [told]


def test_two_tasks_that_promise_the_same_file_are_told_of_each_other(tmp_path: Path) -> None:
    text = "convoy: c\ntasks:\n  - {id: A, command: x, output: out/a}\n  - {id: B, command: x, outputs: [b, out//a]}\n"
    said = "4: 'out//a' of task 'B' is already promised by task 'A' on line 3; keep one"
    assert problems(tmp_path, text) == [said]


def test_an_unknown_runner_in_the_defaults_is_told_once(tmp_path: Path) -> None:
    tasks = "".join(f"  - {{id: T{number}, prompt: x}}\n" for number in range(3))
    told = problems(tmp_path, f"convoy: c\ndefaults:\n  runner: codx\ntasks:\n{tasks}")
    assert told == ["3: unknown runner 'codx' in 'defaults'; did you mean 'codex'?"]


def test_a_wrong_budget_in_the_defaults_is_told_there(tmp_path: Path) -> None:
    told = problems(tmp_path, "convoy: c\ndefaults:\n  budget: {tokens: x, tokes: 1}\ntasks: [{id: A, command: x}]\n")
    assert told == [
        "3: unknown key 'tokes' in 'budget' of 'defaults'; did you mean 'tokens'?",
        "3: 'tokens' in 'budget' of 'defaults' must be a whole number, not 'x'",
    ]


def test_the_runner_of_the_defaults_is_for_prompts_and_commands_go_without(tmp_path: Path) -> None:
    text = "convoy: c\ndefaults: {runner: claude}\ntasks: [{id: A, command: x}, {id: B, prompt: x}]\n"
    assert [task.runner for task in load_plan(write(tmp_path, text), runners=RUNNERS).tasks] == ["", "claude"]


REPO = "convoy: c\nrepos:\n  r:\n    {}\ntasks: [{{id: A, command: x}}]\n"


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("branch: main", "3: repo 'r' has no 'path' and no 'url'; add one"),
        ("{path: a, url: 'https://h/a'}", "4: repo 'r' has both 'path' and 'url'; keep one"),
        (
            "path: https://h/a",
            "4: 'path' in repo 'r' must be a path; a URL is written under 'url'; it is 'https://h/a'",
        ),
        (
            "path: git@h:a.git",
            "4: 'path' in repo 'r' must be a path; a URL is written under 'url'; it is 'git@h:a.git'",
        ),
        ("url: ../lib", "4: 'url' in repo 'r' must be a URL such as https://host/lib.git or git@host:lib.git; a "),
        ("url: -oProxyCommand=x:y", "4: 'url' in repo 'r' must be a URL such as"),
        ("url: 'ext::sh -c x'", "4: 'url' in repo 'r' must be a URL such as"),
        ("url: ''", "4: 'url' in repo 'r' must be a URL such as"),
        ("{path: a, setup: ' '}", "4: 'setup' in repo 'r' must not be blank"),
        ("{path: a, keep: .venv}", "4: 'keep' in repo 'r' must be a list such as [A, B], not '.venv'"),
        ("{path: a, keep: [/x]}", "4: item 1 of 'keep' in repo 'r' must be a relative path inside the repository"),
        ("{path: a, keep: [.git]}", "4: item 1 of 'keep' in repo 'r' must be a relative path inside the repository"),
        ("{path: a, lock: [a, ../b]}", "4: item 2 of 'lock' in repo 'r' must be a relative path inside the repository"),
        ("{path: a, pth: b}", "4: unknown key 'pth' in repo 'r'; did you mean 'path'?"),
    ],
)
def test_a_wrong_repository_is_told_with_its_line(tmp_path: Path, said: str, told: str) -> None:
    (problem,) = problems(tmp_path, REPO.format(said))
    assert problem.startswith(told)


@pytest.mark.parametrize("key", ["{{url: '{}'}}", "{{path: a, backup: '{}'}}"])
def test_a_password_in_a_url_is_refused_and_not_repeated(tmp_path: Path, key: str) -> None:
    (told,) = problems(tmp_path, REPO.format(key.format("https://bee:s3cret@host/a.git")))
    assert told.endswith("which the ledger would keep for ever; use git's credential helper")
    assert "s3cret" not in told


def test_a_misspelt_path_is_one_mistake(tmp_path: Path) -> None:
    told = problems(tmp_path, REPO.format("pth: ../a"))
    assert told == ["4: unknown key 'pth' in repo 'r'; did you mean 'path'?"]


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("https://host/a", True),
        ("ssh://git@host:22/a", True),
        ("file:///srv/a", True),
        ("host:a", True),
        ("git@host:a/b.git", True),
        ("git@host-1.example:~bee/b.git", True),
        ("[::1]:a", False),
        ("./host:a", False),
        ("/srv/a:b", False),
        ("a/b:c", False),
        ("host:", False),
        ("ext::sh", False),
        ("-x:y", False),
        ("ho st:a", False),
        ("", False),
    ],
)
def test_a_url_is_told_from_a_path_as_git_does(text: str, is_one: bool) -> None:  # noqa: FBT001 - a table's column
    assert is_url(text) is is_one


def test_a_wrong_accept_is_told_with_its_line(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, "convoy: c\naccept: ''\ntasks: [{id: A, command: x}]\n")
    assert told.startswith("2: 'accept' in the plan must not be blank")


def test_a_prompt_typed_is_the_text_or_what_a_file_says(tmp_path: Path) -> None:
    (tmp_path / "prompt.md").write_text("Mind the clock.\n")
    assert read_prompt("Mind the clock.") == "Mind the clock."
    assert read_prompt(f"@{tmp_path / 'prompt.md'}") == "Mind the clock.\n"


@pytest.mark.parametrize(
    ("content", "told"),
    [(None, ": there is no such file"), (b"\xff", ":1: not UTF-8"), (b"a\nb\0", ":2: contains a NUL byte; remove it")],
)
def test_a_prompt_file_that_cannot_be_read_is_named(tmp_path: Path, content: bytes | None, told: str) -> None:
    path = tmp_path / "prompt.md"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_prompt(f"@{path}")
    assert str(caught.value).startswith(f"{path}: 1 problem, nothing was added\n{path}{told}")
