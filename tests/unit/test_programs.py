"""Runners and MCP servers that cannot be started, found before anything is: each with what to write in hive.toml."""

import sys
from pathlib import Path

import pytest

from hivekeeper.config.settings import load_settings
from hivekeeper.domain.runner import Runner
from hivekeeper.errors import InputError
from hivekeeper.keeper.programs import find_problem, refuse_secrets
from hivekeeper.places import Places
from hivekeeper.sandbox.isolation import Isolation, Level
from hivekeeper.settings import Settings

OPEN = Isolation(Level.LIMITS, "", "/nowhere/home")
MISSING = (
    "is not installed, or not on the PATH; install it, or write its full path as `{key}` in [runners.x] of hive.toml"
)
GONE = "is not there; install it, or write its full path as `{key}` in [runners.x] of hive.toml"
NO_PATH = "is not there; create it, or write the right path in `{key}` in [runners.x] of hive.toml"


def hidden_home(home: Path, *named: str) -> Isolation:
    """Isolation that hides a home, except for the installations of what is named."""
    return Isolation(Level.NAMESPACES, "", str(home), named=named)


def install(path: Path, mode: int = 0o755) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\n")
    path.chmod(mode)
    return str(path)


@pytest.mark.parametrize(
    ("command", "named", "told"),
    [
        ("no-such-agent", "no-such-agent", MISSING),
        ("FOO=1 timeout 60 no-such-agent", "no-such-agent", MISSING),
        ("env -u A B=c no-such-agent", "no-such-agent", MISSING),
        ("env -i FOO=1 nice -n 5 timeout -s KILL 60 no-such-agent", "no-such-agent", MISSING),
        ("/usr/bin/env no-such-agent", "no-such-agent", MISSING),
        ("exec nohup no-such-agent {prompt}", "no-such-agent", MISSING),
        ("no-such-wrapper agent", "no-such-wrapper", MISSING),
        ("no-such-agent | tee log", "no-such-agent", MISSING),
        ("/nowhere/agent", "/nowhere/agent", GONE),
        ("timeout 60 /nowhere/agent", "/nowhere/agent", GONE),
        ("python3 /nowhere/agent.py", "/nowhere/agent.py", NO_PATH),
        ("python3 -u /tmp/hive-no-such-agent.py", "/tmp/hive-no-such-agent.py", NO_PATH),  # noqa: S108 - not there
        ("sh --config /nowhere/c.toml", "/nowhere/c.toml", NO_PATH),
        ("cat --config=/nowhere/c.toml", "/nowhere/c.toml", NO_PATH),
        ("cat {prompt} < /nowhere/in", "/nowhere/in", NO_PATH),
        (f"cat /{'long' * 100}/x", f"/{'long' * 100}/x", NO_PATH),
    ],
)
def test_a_command_that_cannot_be_started_is_found_whatever_stands_before_it(
    command: str, named: str, told: str
) -> None:
    assert find_problem(Runner("x", command), OPEN) == f"'{named}' of runner 'x' {told.format(key='command')}"


def test_a_path_in_args_is_looked_for_too() -> None:
    problem = find_problem(Runner("x", "cat", args="--config /nowhere/c.toml"), OPEN)
    assert problem == f"'/nowhere/c.toml' of runner 'x' {NO_PATH.format(key='args')}"


@pytest.mark.parametrize(
    "command",
    [
        "FOO=1 timeout 60 cat",
        "env A=b cat -- {prompt} /dev/null",
        "PATH=/opt/x/bin:$PATH agent",  # found where only the shell that starts it looks
        "env PATH=/opt/x/bin agent",
        "$HOME/agent",
        "./agent --fast",
        "python3 agent.py",
        "bin/agent",
        'cat "$HIVE_ROOT/x" /nowhere/$HIVE_TASK /nowhere/*.md',
        "sh -c '/nowhere/agent --fast'",  # a script, not a path
        "test -x /nowhere/agent && /nowhere/agent",
        "[ ! -f /nowhere/rc ] || . /nowhere/rc; cat",
        "if true; then /nowhere/agent; fi",
        "cat\n/nowhere/agent",
        "cat /review",  # a word of the program's own
        "cat --log /tmp/agent/its.log > /var/tmp/said 2> /dev/stderr",
        "cat --volume=/a:/b",
        "hive mail ls",  # a worker has it, wherever it is installed
        "",
    ],
)
def test_what_only_the_sandbox_can_know_is_no_problem(command: str) -> None:
    assert find_problem(Runner("x", command), OPEN) is None


def test_a_program_of_the_search_path_that_a_runner_sets_is_found_there(tmp_path: Path) -> None:
    install(tmp_path / "bin" / "my-agent")
    runner = Runner("x", "timeout 9 my-agent", environment={"PATH": f"{tmp_path}/bin:/usr/bin:/bin"})
    assert find_problem(runner, OPEN) is None


def test_a_place_that_a_program_may_write_need_not_be_there_yet(tmp_path: Path) -> None:
    runner = Runner("x", "cat --log /nowhere/logs/a.log")
    assert find_problem(runner, OPEN) is not None
    assert find_problem(runner, Isolation(Level.LIMITS, "", "/nowhere/home", write=("/nowhere/logs",))) is None


def test_a_file_that_nobody_may_execute_is_said_to_be_one(tmp_path: Path) -> None:
    path = install(tmp_path / "agent", 0o644)
    problem = find_problem(Runner("x", f"timeout 60 {path}"), OPEN)
    assert problem == f"'{path}' of runner 'x' is not executable; type: chmod +x {path}"
    assert find_problem(Runner("x", f"python3 {path}"), OPEN) is None, "an interpreter only reads it"


@pytest.mark.parametrize("command", ["~/agent", "timeout 60 ~/agent", "python3 -u ~/agent"])
def test_a_program_of_the_persons_home_is_to_be_written_in_full(command: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/my/home")
    problem = find_problem(Runner("x", command), OPEN)
    said = "would be in the worker's own home; write /my/home/agent in `command` in [runners.x] of hive.toml"
    assert problem == f"'~/agent' of runner 'x' {said}"


def test_a_program_that_is_hidden_in_the_sandbox_is_found_with_what_to_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "home"
    path = install(home / "my-agent")
    monkeypatch.setenv("PATH", f"{home}:/usr/bin:/bin")  # a home is not shown for a program that lies in it
    problem = find_problem(Runner("x", "timeout 60 my-agent"), hidden_home(home))
    assert problem == (
        f"'my-agent' of runner 'x' is hidden in the sandbox; write {path} as `command` in [runners.x] of hive.toml"
    )
    assert find_problem(Runner("x", f"timeout 60 {path}"), hidden_home(home, path)) is None, "that is enough"
    assert find_problem(Runner("x", "my-agent"), OPEN) is None, "without isolation nothing is hidden"


def test_a_path_that_is_hidden_in_the_sandbox_is_found_with_what_to_write(tmp_path: Path) -> None:
    file = install(tmp_path / "home" / "tools" / "rules.md")
    hidden = hidden_home(tmp_path / "home")
    for path, directory in ((file, tmp_path / "home" / "tools"), (str(tmp_path / "home" / "tools"),) * 2):
        problem = find_problem(Runner("x", f"cat --rules={path}"), hidden)
        line = f'read = ["{directory}"] in [sandbox] of hive.toml'
        assert problem == f"'{path}' of runner 'x' is hidden in the sandbox; write {line}"
    assert find_problem(Runner("x", f"cat --rules={file}"), hidden_home(tmp_path / "home", file)) is None


SERVERS = {
    'files = ["no-such-server"]': ("no-such-server", "files", MISSING),
    'files = ["env", "A=b", "no-such-server", "--stdio"]': ("no-such-server", "files", MISSING),
    'other = ["/nowhere/server.py"]': ("/nowhere/server.py", "other", GONE),
    'other = ["python3", "-u", "/nowhere/server.py"]': ("/nowhere/server.py", "other", NO_PATH),
    'third = ["python3", "server.py", "--root=/nowhere/data"]': ("/nowhere/data", "third", NO_PATH),
    'third = ["cat", "/no-such-data"]': ("/no-such-data", "third", NO_PATH),
}


@pytest.mark.parametrize("table", SERVERS)
@pytest.mark.parametrize("runner", ['command = "cat"', 'acp = "cat --acp"', 'like = "goose"\ncommand = "cat"'])
def test_an_mcp_server_that_cannot_be_started_is_found(tmp_path: Path, runner: str, table: str) -> None:
    (tmp_path / "hive.toml").write_text(f"[runners.x]\n{runner}\nmcp = {{{table}}}\n")
    word, server, told = SERVERS[table]
    problem = find_problem(load_settings(tmp_path).runners["x"], OPEN)
    assert problem == f"'{word}' of MCP server '{server}' of runner 'x' {told.format(key=f'mcp.{server}')}"


def test_mcp_servers_that_are_here_and_the_workers_own_are_no_problem(tmp_path: Path) -> None:
    server = install(tmp_path / "server.py", 0o644)
    servers = {
        "mine": (sys.executable, server, f"--root={tmp_path}", "calls 'so far'.jsonl"),
        "relative": ("./server", "--stdio"),
        "hive": ("hive", "mcp"),
    }
    assert find_problem(Runner("x", "cat", servers=servers), OPEN) is None


def test_paths_of_options_are_named_so_that_the_sandbox_shows_them() -> None:
    servers = {"third": ("python3", "--root=/root/data", "A=/b", "--url=http://x/y")}
    runner = Runner("x", "A=/a cat /x; cat --to=/y\n</z", args="-c /d --e=/f", servers=servers)
    assert list(runner.list_paths()) == [
        *(("command", path) for path in ("/x", "/y", "/z")),
        ("mcp.third", "/root/data"),
        *(("args", path) for path in ("/d", "/f")),
    ]


def test_a_path_of_an_option_shows_no_worker_the_credentials_of_a_person(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".ssh").mkdir()
    servers = {"files": ("cat", f"--root={tmp_path}/.ssh")}
    with pytest.raises(InputError, match=r"\[runners.x\] mcp.files in hive.toml names .*/.ssh, and no worker may see"):
        refuse_secrets(Settings(runners={"x": Runner("x", "cat", servers=servers)}), Places(tmp_path / "hive"))
