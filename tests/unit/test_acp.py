"""Runners over the Agent Client Protocol: their tables in hive.toml, their command lines, and how they are read."""

import json
from pathlib import Path

import pytest

from hivekeeper.config.settings import load_settings
from hivekeeper.domain.report import Outcome, Report, Usage
from hivekeeper.domain.runner import PromptBy, Reach, Runner
from hivekeeper.errors import InputError
from hivekeeper.runners import PRESETS, make_reader
from hivekeeper.runners.acp import COMMANDS, PROGRAMS, Program, find_program, speak_acp
from hivekeeper.runners.reading import Reader


def load(directory: Path, text: str) -> dict[str, Runner]:
    (directory / "hive.toml").write_text(text)
    return load_settings(directory).runners


def read(*records: dict[str, object]) -> Reader:
    reader = make_reader(speak_acp(Runner("mine", ""), "x --acp"))
    for record in records:
        reader.take(json.dumps(record).encode())
    return reader


def end(outcome: str, **more: object) -> dict[str, object]:
    return {"type": "end", "class": outcome, **more}


SESSION: dict[str, object] = {"type": "session", "id": "s-1", "model": "m-1"}
CALL: dict[str, object] = {"type": "tool", "state": "begun", "id": "t"}
CALLED: dict[str, object] = {"type": "tool", "state": "ended", "id": "t", "status": "completed"}


def test_one_line_is_all_that_a_new_program_needs(tmp_path: Path) -> None:
    runner = load(tmp_path, '[runners.x]\nacp = "x --acp"\n')["x"]
    assert (runner.program, runner.prompt, runner.reach) == ("x", PromptBy.STDIN, Reach.SESSION)
    assert (runner.can_resume, runner.chooses_session, runner.speaks) == (True, False, True)
    assert runner.log == "home/.hive-acp/frames.jsonl"
    script = runner.make_argv("it's", resume=True)[2]
    assert '"$HIVE_PYTHON" -I -m hivekeeper.worker.acp ' in script
    assert " --load 'it'\"'\"'s' -- env x --acp \n" in script


def test_what_waits_in_a_session_follows_the_limits_and_the_mail_types_of_the_hive(tmp_path: Path) -> None:
    limits = '[limits]\nno_answer = "100s"\nsilence = "none"\n'
    type_ = '[mail.types.STOP]\nlike = "HANDOFF"\nurgent = true\n'
    script = load(tmp_path, f'{limits}{type_}[runners.x]\nacp = "x"\n')["x"].make_argv()[2]
    assert "--urgent HANDOFF,PRIORITY_MERGE,STOP --silence 95 -- env x" in script


@pytest.mark.parametrize("name", COMMANDS)
def test_a_known_program_keeps_what_is_known_of_it(tmp_path: Path, name: str) -> None:
    runner = load(tmp_path, f'[runners.{name}]\nvia = "acp"\nargs = "--more"\n')[name]
    known = PRESETS[name]
    assert (runner.inherit, runner.sign_in, runner.configuration) == (
        known.inherit,
        known.sign_in,
        known.configuration,
    )
    assert set(known.environment.items()) <= set(runner.environment.items())
    assert runner.make_argv()[2].count(f"-- env {COMMANDS[name]} --more") == 1
    assert find_program(COMMANDS[name].split()) is PROGRAMS[name]


def test_its_model_is_read_from_its_own_command(tmp_path: Path) -> None:
    runner = load(tmp_path, '[runners.gemini]\nvia = "acp"\nargs = "-m gemini-2.5-pro"\n')["gemini"]
    assert runner.find_model({}) == "gemini-2.5-pro"
    assert load(tmp_path, '[runners.x]\nacp = "x --acp"\n')["x"].find_model({}) == ""


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ('[runners.x]\nvia = "acp"\ncommand = "x"', "'command' in [runners.x] is for a program that is driven by its"),
        ('[runners.x]\nacp = "x"\ncommand = "y"', "command line; remove it, or 'acp'"),
        ('[runners.x]\nacp = "x"\nprompt = "file"', "'prompt' in [runners.x] is for a program"),
        ('[runners.x]\nacp = "x {prompt}"', "'acp' in [runners.x] contains '{'; the prompt and the session go over"),
        ('[runners.x]\nacp = " "', "'acp' in [runners.x] must not be blank"),
        ('[runners.aider]\nvia = "acp"', "'via' in [runners.aider]: acp is known for claude, codex, gemini, goose"),
        ('[runners.goose]\nvia = "mail"', "'via' in [runners.goose] must be 'command' or 'acp', not 'mail'"),
    ],
)
def test_a_table_that_contradicts_itself_is_refused(tmp_path: Path, table: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(tmp_path, table)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("words", "name"),
    [
        ("npx @agentclientprotocol/claude-agent-acp", "claude"),
        ("env A=goose /opt/bin/codex-acp -v", "codex"),
        ("uvx openhands acp --always-approve", "openhands"),
        ("pi-acp", "pi"),
        ("pine --acp", ""),
    ],
)
def test_a_program_is_known_by_its_command(words: str, name: str) -> None:
    assert find_program(words.split()) == PROGRAMS.get(name, Program(""))


def test_a_session_is_read_to_its_end() -> None:
    texts: list[dict[str, object]] = [{"type": "text", "text": "Ma"}, {"type": "text", "text": "de.", "more": True}]
    used: dict[str, object] = {"type": "usage", "tokens_in": 100, "tokens_out": 5, "microusd": 7}
    reader = read(SESSION, CALL, CALLED, *texts, used, end("done"))
    assert reader.report(0, "exit", must_act=True) == Report(Outcome.DONE, "Made.", "s-1", Usage(100, 5, 7))
    assert reader.model == "m-1"


def test_whether_it_waits_for_its_model_is_told_by_its_tool_calls() -> None:
    assert read(SESSION).awaits_model
    assert not read(SESSION, CALL).awaits_model
    assert read(SESSION, CALL, CALLED).awaits_model


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome is not Outcome.DONE])
def test_each_class_is_the_outcome_of_that_name(outcome: Outcome) -> None:
    report = read(SESSION, CALL, end(outcome.value, words="so it was", retry_s=3)).report(1, "exit", must_act=True)
    assert (report.outcome, report.words, report.retry_s) == (outcome, "so it was", 3.0)


def test_one_that_only_talked_about_its_task_has_refused_it() -> None:
    reader = read(SESSION, {"type": "text", "text": "I cannot help."}, end("done"))
    assert reader.report(0, "exit", must_act=True).outcome is Outcome.REFUSED


def test_one_without_an_end_has_crashed_and_its_last_lines_say_why() -> None:
    assert read(SESSION, CALL).report(1, "exit", must_act=True).outcome is Outcome.CRASHED
    log: dict[str, object] = {"type": "log", "text": "unknown option --acp"}
    report = read(log, end("setup", words="")).report(1, "exit", must_act=True)
    assert (report.outcome, report.words) == (Outcome.SETUP, "unknown option --acp")


def test_a_record_that_is_none_harms_nobody() -> None:
    odd: list[dict[str, object]] = [
        {"type": "end", "class": ["x"], "retry_s": "soon"},
        {"type": "usage", "tokens_in": "many"},
        {"type": "session", "id": {"a": 1}},
        {"type": 7},
    ]
    assert read(*odd).report(1, "exit", must_act=True).outcome is Outcome.CRASHED


def test_one_that_was_ended_from_outside_keeps_its_session() -> None:
    report = read(SESSION, CALL).report(None, "killed", must_act=True)
    assert (report.outcome, report.session) == (Outcome.KILLED, "s-1")
    assert read(SESSION).report(None, "limit", must_act=True).outcome is Outcome.NO_ANSWER
