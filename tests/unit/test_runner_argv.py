"""How an agent program is started and asked, as a real shell does it: prompt, session, home, MCP servers, answers."""

import json
import os
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from hivekeeper.domain.report import Outcome, Report, Usage
from hivekeeper.domain.runner import MAX_ARGUMENT, WORKER_VARIABLES, PromptBy, Runner
from hivekeeper.runners import PRESETS, make_reader
from hivekeeper.runners.answers import Answer, Question, Unfit

TEXT = "It's \"quoted\" $(touch made) `touch made` ${HOME} \\n \\\\ 100% *\n\n\t; touch made & 'ü'\n#"
SESSION = "a b'; touch made; '$(touch made)"
SERVERS: Mapping[str, tuple[str, ...]] = {"files": ("npx", "-y", "server", "/data"), "clock": ("clock",)}
# It tells what it was given: its arguments, and what it could read.
SHOW = '#!/bin/sh\nprintf "%s\\0" "$@" > "$HOME/arguments"\ncat > "$HOME/stdin"\n'


@dataclass(frozen=True)
class Sandbox:
    """A worker's home, a person's home, and a folder to work in."""

    home: Path
    person: Path
    work: Path

    def run(self, argv: tuple[str, ...], prompt: bytes | str = "") -> subprocess.CompletedProcess[bytes]:
        asked = self.work.with_name("the prompt.md")
        asked.write_bytes(prompt if isinstance(prompt, bytes) else prompt.encode())
        environment = {
            "PATH": f"{self.work.with_name('bin')}:{os.environ['PATH']}",
            "HOME": str(self.home),
            "HIVE_HOME": str(self.person),
            "HIVE_PROMPT": str(asked),
            "TMPDIR": str(self.home),
        }
        return subprocess.run(
            argv, cwd=self.work, env=environment, capture_output=True, check=False, stdin=subprocess.DEVNULL
        )

    def install(self, program: str, script: str = SHOW) -> None:
        place = self.work.with_name("bin") / program
        place.parent.mkdir(exist_ok=True)
        place.write_text(script)
        place.chmod(0o755)

    def read_arguments(self) -> list[str]:
        return (self.home / "arguments").read_text().split("\0")[:-1]


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    made = Sandbox(tmp_path / "it's home", tmp_path / "person", tmp_path / "work")
    for folder in (made.home, made.person, made.work):
        folder.mkdir()
    return made


@pytest.mark.parametrize(
    ("command", "by"),
    [
        ("cat", PromptBy.STDIN),
        ("cat", PromptBy.FILE),
        ("cat -- {prompt} /dev/null", PromptBy.FILE),
        ("printf %s", PromptBy.ARGUMENT),
        ("printf %s {prompt} ''", PromptBy.ARGUMENT),
    ],
)
def test_a_prompt_arrives_byte_for_byte_whatever_its_way(sandbox: Sandbox, command: str, by: PromptBy) -> None:
    done = sandbox.run(Runner("mine", command, by).make_argv(), TEXT)
    assert (done.returncode, done.stdout, done.stderr) == (0, TEXT.encode(), b"")
    assert list(sandbox.work.iterdir()) == []


@pytest.mark.parametrize("by", [PromptBy.STDIN, PromptBy.FILE])
def test_a_prompt_by_file_or_stdin_may_be_no_text_and_of_any_length(sandbox: Sandbox, by: PromptBy) -> None:
    prompt = bytes(range(256)) * 4096
    assert sandbox.run(Runner("mine", "cat", by).make_argv(), prompt).stdout == prompt


def test_the_longest_prompt_that_can_be_an_argument_is_one(sandbox: Sandbox) -> None:
    prompt = "x" * (MAX_ARGUMENT - 1)
    for runner in (Runner("mine", "printf %s", PromptBy.ARGUMENT), PRESETS["mini"]):
        argv = replace(runner, command="env printf %s").make_argv()
        assert sandbox.run(argv, prompt).stdout.decode() == prompt


def test_a_longer_one_is_named_to_a_program_that_reads(sandbox: Sandbox) -> None:
    argv = Runner("mine", "env printf %s", PromptBy.ARGUMENT, output="mini").make_argv()
    done = sandbox.run(argv, "x" * MAX_ARGUMENT)
    assert done.stdout.decode() == f"Your task is in the file {sandbox.work.with_name('the prompt.md')}. Read it."


def test_a_longer_one_is_refused_for_any_other_command(sandbox: Sandbox) -> None:
    done = sandbox.run(Runner("mine", "env printf %s", PromptBy.ARGUMENT).make_argv(), "x" * MAX_ARGUMENT)
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"the prompt is too long to be an argument" in done.stderr
    assert b"[runners.mine]" in done.stderr


def test_a_sessions_id_is_one_word_whatever_is_in_it(sandbox: Sandbox) -> None:
    runner = Runner("mine", "printf '<%s>' new {session} {args}", PromptBy.STDIN, args="-a {session}")
    runner = replace(runner, resume="printf '<%s>' old {session} {args}")
    assert sandbox.run(runner.make_argv(SESSION)).stdout.decode() == f"<new><{SESSION}><-a><{SESSION}>"
    assert sandbox.run(runner.make_argv(SESSION, resume=True)).stdout.decode() == f"<old><{SESSION}><-a><{SESSION}>"
    assert list(sandbox.work.iterdir()) == []


def test_files_to_sign_in_with_are_copied_and_not_over_what_is_newer(sandbox: Sandbox, tmp_path: Path) -> None:
    absolute = tmp_path / "my key.json"
    absolute.write_text("key")
    theirs, own = sandbox.person / ".tool/it's auth.json", sandbox.home / ".tool/it's auth.json"
    theirs.parent.mkdir()
    theirs.write_text("first")
    runner = Runner("mine", "true", sign_in=("~/.tool/it's auth.json", "~/.tool/none.json", str(absolute)))
    assert sandbox.run(runner.make_argv()).returncode == 0
    assert (own.read_text(), (sandbox.home / "my key.json").read_text()) == ("first", "key")
    assert not (own.parent / "none.json").exists()
    own.write_text("renewed")
    os.utime(theirs, (0, 0))
    assert sandbox.run(runner.make_argv()).returncode == 0
    assert own.read_text() == "renewed", "in the worker, since"
    theirs.write_text("second")
    os.utime(own, (0, 0))
    assert sandbox.run(runner.make_argv()).returncode == 0
    assert own.read_text() == "second", "the person has signed in anew"


def test_files_of_its_home_are_written_once(sandbox: Sandbox) -> None:
    runner = Runner("mine", "true", home={".config/mine/it's.toml": TEXT})
    assert sandbox.run(runner.make_argv()).returncode == 0
    written = sandbox.home / ".config/mine/it's.toml"
    assert written.read_text() == TEXT
    written.write_text("its own")
    assert sandbox.run(runner.make_argv()).returncode == 0
    assert written.read_text() == "its own"


@pytest.mark.parametrize(
    ("program", "given"),
    [
        (
            "codex",
            [
                *("-c", 'mcp_servers.files.command="npx"', "-c", 'mcp_servers.files.args=["-y", "server", "/data"]'),
                *("-c", f"mcp_servers.files.env_vars={json.dumps(WORKER_VARIABLES)}"),
                *("-c", 'mcp_servers.clock.command="clock"', "-c", "mcp_servers.clock.args=[]"),
                *("-c", f"mcp_servers.clock.env_vars={json.dumps(WORKER_VARIABLES)}"),
            ],
        ),
        ("goose", ["--with-extension", "files:npx -y server /data", "--with-extension", "clock:clock"]),
        ("pi", []),
    ],
)
def test_mcp_servers_are_words_of_the_command_where_a_program_takes_them_so(
    sandbox: Sandbox, program: str, given: list[str]
) -> None:
    sandbox.install("show")
    runner = replace(PRESETS[program], command="show {args} end", args="--mine", servers=SERVERS)
    assert sandbox.run(runner.make_argv()).returncode == 0
    assert sandbox.read_arguments() == ["--mine", *given, "end"]
    resumed = replace(runner, resume="show {args} end")
    assert sandbox.run(resumed.make_argv(resume=True)).returncode == 0
    # Goose knows the servers of a session that it resumes, and refuses one that it knows.
    assert sandbox.read_arguments() == ["--mine", *(given if program != "goose" else []), "end"]


def test_a_server_of_hive_toml_replaces_the_hives_own_of_that_name() -> None:
    own = ("hive", "mcp")
    assert PRESETS["codex"].with_server("hive", own).servers == {"hive": own}
    theirs = replace(PRESETS["codex"], servers={"hive": ("mine",)})
    assert theirs.with_server("hive", own).servers == {"hive": ("mine",)}
    assert not PRESETS["pi"].with_server("hive", own).servers, "it takes none"


@pytest.mark.parametrize(
    ("program", "file", "words"),
    [
        ("claude", ".hive-mcp.json", ["--mcp-config", "{file}"]),
        ("qwen", ".hive-mcp.json", ["--mcp-config", "{file}"]),
        ("gemini", ".hive-mcp.json", []),
        ("copilot", ".copilot/mcp-config.json", []),
    ],
)
def test_mcp_servers_are_a_file_where_a_program_reads_one(
    sandbox: Sandbox, program: str, file: str, words: list[str]
) -> None:
    sandbox.install("show")
    assert sandbox.run(replace(PRESETS[program], command="show first {args}").make_argv()).returncode == 0
    assert sandbox.read_arguments() == ["first"]
    assert not (sandbox.home / file).exists()
    serving = replace(PRESETS[program], command="show first {args}", servers=SERVERS)
    assert sandbox.run(serving.make_argv()).returncode == 0
    given = [str(sandbox.home / file) if word == "{file}" else word for word in words]
    assert sandbox.read_arguments() == ["first", *given]
    variables = {name: f"${{{name}}}" for name in WORKER_VARIABLES}
    extra = {"type": "local", "tools": ["*"], "env": variables} if program == "copilot" else {}
    assert json.loads((sandbox.home / file).read_text())["mcpServers"] == {
        "files": {"command": "npx", "args": ["-y", "server", "/data"], **extra},
        "clock": {"command": "clock", "args": [], **extra},
    }


def test_opencode_reads_its_servers_from_a_file_that_is_not_in_the_repository(sandbox: Sandbox) -> None:
    sandbox.install("opencode", '#!/bin/sh\ncp "$OPENCODE_CONFIG" "$HOME/read"\n')
    runner = replace(PRESETS["opencode"], servers=SERVERS)
    for resume in (False, True):
        assert sandbox.run(runner.make_argv(SESSION, resume=resume)).returncode == 0
        assert json.loads((sandbox.home / "read").read_text())["mcp"] == {
            "files": {"type": "local", "command": ["npx", "-y", "server", "/data"]},
            "clock": {"type": "local", "command": ["clock"]},
        }
    assert list(sandbox.work.iterdir()) == []


@pytest.mark.parametrize("program", PRESETS)
def test_a_shell_understands_every_preset(program: str) -> None:
    for servers in ({}, SERVERS):
        runner = replace(PRESETS[program], servers=servers, args="--model 'a b'", home={".a/b": TEXT})
        for resume in (False, True) if runner.can_resume else (False,):
            shell, option, text = runner.make_argv(SESSION, resume=resume)
            assert (shell, option) == ("sh", "-c")
            done = subprocess.run(("sh", "-n"), input=text.encode(), capture_output=True, check=False)
            assert (done.returncode, done.stderr) == (0, b""), text


@pytest.mark.parametrize("program", PRESETS)
def test_every_preset_hands_its_program_the_prompt_the_session_and_the_arguments(
    sandbox: Sandbox, program: str
) -> None:
    runner = replace(PRESETS[program], args="--model 'a b'")
    sandbox.install(runner.program)
    for resume in (False, True) if runner.can_resume else (False,):
        sandbox.run(runner.make_argv(SESSION, resume=resume), TEXT)
        words = sandbox.read_arguments()
        match runner.prompt:
            case PromptBy.STDIN:
                assert (sandbox.home / "stdin").read_text() == TEXT
            case PromptBy.FILE:
                assert str(sandbox.work.with_name("the prompt.md")) in words
            case PromptBy.ARGUMENT:
                assert TEXT in words
        assert words[words.index("--model") + 1] == "a b"
        assert any(SESSION in word for word in words) == (resume or runner.chooses_session)
    assert list(sandbox.work.iterdir()) == []


@pytest.mark.parametrize("program", [name for name, runner in PRESETS.items() if runner.sign_in])
def test_every_preset_signs_in_with_files_of_the_persons_home(sandbox: Sandbox, program: str) -> None:
    runner = PRESETS[program]
    for path in runner.sign_in:
        place = sandbox.person / path.removeprefix("~/")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(path)
    sandbox.install(runner.program)
    sandbox.run(runner.make_argv(SESSION))
    assert [(sandbox.home / path.removeprefix("~/")).read_text() for path in runner.sign_in] == list(runner.sign_in)


def test_minis_command_tells_of_its_trajectory(sandbox: Sandbox) -> None:
    usage = {"extra": {"response": {"usage": {"prompt_tokens": 400, "completion_tokens": 30}}}}
    info = {"exit_status": "Submitted", "submission": "done", "model_stats": {"api_calls": 2, "instance_cost": 0.25}}
    trajectory = {"info": info, "messages": [{"role": "user"}, {"extra": None}, usage, usage]}
    sandbox.install("mini", f"#!/bin/sh\ncat > \"$TMPDIR/trajectory.json\" <<'END'\n{json.dumps(trajectory)}\nEND\n")
    done = sandbox.run(PRESETS["mini"].make_argv(), TEXT)
    reader = make_reader(PRESETS["mini"])
    for line in done.stdout.splitlines():
        reader.take(line)
    report = reader.report(done.returncode, "exit", must_act=True)
    assert report == Report(Outcome.DONE, "done", "", Usage(800, 60, 250_000))


QUESTION = Question(
    "Can it be settled?",
    {
        "type": "object",
        "properties": {"settled": {"type": "boolean"}, "why": {"type": "string"}},
        "required": ["settled"],
    },
)


@pytest.mark.parametrize(
    "words",
    [
        '{"settled": true}',
        'I have looked at it. My answer: {"settled": true} - as you asked.',
        'Here it is:\n\n```json\n{\n  "settled": true\n}\n```\n',
        'At first {"settled": false}, then {"no": 1}, at last {"settled": true}',
        'Of { and } and {"torn": there is much; {"settled": true}',
    ],
)
def test_an_answer_is_the_last_object_whatever_stands_around_it(words: str) -> None:
    assert QUESTION.read(words) == Answer({"settled": True})


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ("", "there is no JSON object in it"),
        ("It is settled. [true]", "there is no JSON object in it"),
        ("[" * 100_000, "there is no JSON object in it"),
        ('{"a":' * 10_000, "there is no JSON object in it"),
        ('{"settled": "yes"}', "$.settled: 'yes' is not of type 'boolean'"),
        ('{"settled": true, "why": 7}', "$.why: 7 is not of type 'string'"),
        ("{}", "$: 'settled' is a required property"),
    ],
)
def test_what_does_not_fit_is_told_with_its_place_when_asked_once_more(words: str, why: str) -> None:
    unfit = QUESTION.read(words)
    assert isinstance(unfit, Unfit)
    assert unfit.why == why
    assert QUESTION.prompt in QUESTION.say()
    assert json.dumps(QUESTION.schema) in QUESTION.say()
    assert why not in QUESTION.say()
    assert f"Your last answer did not fit: {why}." in QUESTION.say(unfit)


def test_an_answer_can_be_written_down_however_deep_or_odd() -> None:
    assert QUESTION.read('{"settled": true, "why": "\\ud800"}') == Answer({"settled": True, "why": "?"})
    for deep in range(850, 1000):
        answer = QUESTION.read(f'{{"settled": {"[" * deep}{"]" * deep}}}')
        assert isinstance(answer, Unfit)
        assert len(answer.why) <= 300
