"""The settings file: its defaults, and every way it can be wrong."""

import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivekeeper.config.settings import TABLES, load_settings
from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.config.values import read_duration, read_size
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.errors import InputError
from hivekeeper.runners import PRESETS
from hivekeeper.settings import Settings


def load(directory: Path, text: str | bytes) -> Settings:
    (directory / "hive.toml").write_bytes(text if isinstance(text, bytes) else text.encode())
    return load_settings(directory)


def problems(directory: Path, text: str | bytes) -> list[str]:
    """Load settings that must be refused, and return what was said of them, each as `line: sentence`."""
    with pytest.raises(InputError) as caught:
        load(directory, text)
    first, *rest = str(caught.value).split("\n")
    count = f"{len(rest)} problem{'s' if len(rest) > 1 else ''}"
    assert first == f"{directory / 'hive.toml'}: {count}, nothing was done"
    return [line.removeprefix(f"{directory / 'hive.toml'}:") for line in rest]


def test_a_hive_without_the_file_has_the_defaults(tmp_path: Path) -> None:
    assert load_settings(tmp_path) == Settings()


def test_an_empty_file_has_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, "") == Settings()


def test_the_defaults_are_the_promised_ones() -> None:
    found = Settings()
    assert found.limits == Limits(14_400.0, 3600.0, 64 << 20, None, 1000, 20 << 30)
    assert (found.workers, found.archive_after_s, found.snapshot_every_s) == (4, 86_400.0, 300.0)
    assert (found.heartbeat_s, found.abandoned_after_s, found.poll_s, found.preempt_s) == (60.0, 300.0, 2.0, 30.0)
    assert (found.level, found.require, found.read, found.write, found.reclaim_after_s) == (None, None, (), (), 3600.0)


def test_the_file_that_init_writes_loads_to_the_defaults(tmp_path: Path) -> None:
    assert load(tmp_path, DEFAULT_TOML) == Settings()


BY_NAME = ("runners", "prices")  # what is in these tables has names of the person's
OTHER_VALUES = {
    "heartbeat": "20",
    "abandoned_after": "7000",
    "level": '"landlock"',
    "require": '"namespaces"',
    "read": '["/a"]',
    "write": '["/a"]',
    "queue": "false",
    "cleanup": "false",
    "convoys": "false",
    "mail": "false",
    "identity": "false",
    "repository": "true",
    "resolver": '"scripted"',
}


def test_the_file_that_init_writes_says_every_key(tmp_path: Path) -> None:
    """A value changed anywhere in it must change the settings, or the line in the file is an ornament."""
    lines = DEFAULT_TOML.splitlines()
    said = [index for index, line in enumerate(lines) if line.partition(" = ")[1] and not line.startswith("#")]
    changed: list[Settings] = []
    for index in said:
        key = lines[index].partition(" = ")[0]
        edited = [*lines[:index], f"{key} = {OTHER_VALUES.get(key, '7')}", *lines[index + 1 :]]
        found = load(tmp_path, "\n".join(edited))
        assert found not in [Settings(), *changed], key
        changed.append(found)
    keys = [table.model_fields.keys() - {"types"} for name, table in TABLES.items() if name not in BY_NAME]
    assert len(changed) == sum(map(len, keys))


def test_the_runner_that_the_file_of_init_shows_as_an_example_loads(tmp_path: Path) -> None:
    shown = DEFAULT_TOML[DEFAULT_TOML.index("# [runners") : DEFAULT_TOML.index("# What a small hive")]
    text = "\n".join(line.removeprefix("# ") for line in shown.splitlines())
    runners = load(tmp_path, text).runners
    assert runners["claude"] == replace(PRESETS["claude"], args="--model opus")
    assert runners["mine"] == Runner("mine", "my-agent --print", PromptBy.STDIN)


def test_every_key_is_taken_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/bee")
    said = load(
        tmp_path,
        """
[hive]
workers = 1000
archive_after = "2h"
[keeper]
heartbeat = 0.5
abandoned_after = "1s"
poll = "1m"
preempt = "2m"
[limits]
timeout = "1h30m"
silence = "45m"
output = "2MB"
memory = "1.5GiB"
processes = 64
disk = "none"
[sandbox]
level = "namespaces"
require = "landlock"
read = ["~/.config/agent/", "/opt//tools"]
write = ["~"]
snapshot_every = "30s"
reclaim_after = "1d"
[runners.claude]
command = "claude -p"
prompt = "stdin"
[runners."gpt-4.1"]
command = "agent --ask {prompt} --yes"
[patterns]
queue = false
cleanup = false
convoys = false
""",
    )
    assert said == Settings(
        workers=1000,
        archive_after_s=7200.0,
        heartbeat_s=0.5,
        abandoned_after_s=1.0,
        poll_s=60.0,
        preempt_s=120.0,
        timeout_s=5400.0,
        silence_s=2700.0,
        output_bytes=2_000_000,
        memory_bytes=3 << 29,
        processes=64,
        disk_bytes=None,
        level="namespaces",
        require="landlock",
        read=("/home/bee/.config/agent", "/opt/tools"),
        write=("/home/bee",),
        snapshot_every_s=30.0,
        reclaim_after_s=86_400.0,
        runners=PRESETS
        | {
            "claude": Runner("claude", "claude -p", PromptBy.STDIN),
            "gpt-4.1": Runner("gpt-4.1", "agent --ask {prompt} --yes", PromptBy.FILE),
        },
        queue=False,
        cleanup=False,
        convoys=False,
    )
    assert said.runner_names == (*PRESETS, "gpt-4.1", "scripted")


@pytest.mark.parametrize(
    ("table", "text", "told"),
    [
        ("queue", "parallel = 0", "'parallel' in [queue] must be"),
        ("queue", "resolver = 'scriptd'", "'resolver' in [queue] is 'scriptd', and there is no such runner"),
        ("sandbox", "level = 'high'", "'level' in [sandbox] must be 'best', 'namespaces', 'landlock' or 'limits', not"),
        ("sandbox", "require = 'limits'", "'require' in [sandbox] must be 'none', 'landlock' or 'namespaces', not"),
        ("sandbox", "read = 'x'", "'read' in [sandbox] must be a list such as [A, B], not 'x'"),
        ("sandbox", "read = ['x']", "item 1 of 'read' in [sandbox] must begin with '/' or '~'; it is 'x'"),
        ("sandbox", "write = ['/', '']", "item 2 of 'write' in [sandbox] must begin with '/' or '~'; it is ''"),
        ("sandbox", "write = ['~nobody-like-this/x']", "item 1 of 'write' in [sandbox] must begin with '/' or '~'"),
        ("hive", "workers = 0", "'workers' in [hive] must be a whole number from 1 to 1,000, not 0"),
        ("hive", "workers = 1001", "'workers' in [hive] must be a whole number from 1 to 1,000, not 1001"),
        ("sandbox", "snapshot_every = 0", "'snapshot_every' in [sandbox] must be more than 0"),
        ("sandbox", "reclaim_after = 'x'", "'reclaim_after' in [sandbox] must be a duration such as"),
        ("keeper", "preempt = 0", "'preempt' in [keeper] must be more than 0"),
        ("limits", "processes = 0", "'processes' in [limits] must be a whole number from 1 to 1,000,000, not 0"),
        ("limits", "processes = true", "'processes' in [limits] must be a whole number from 1 to 1,000,000, not true"),
        ("limits", "disk = 0", "'disk' in [limits] must be at least 1 byte"),
        ("patterns", "queue = 1", "'queue' in [patterns] must be true or false, not 1"),
        (
            "patterns",
            "zzz = true",
            "unknown key 'zzz' in [patterns]; known here: queue, cleanup, convoys, mail, identity, repository",
        ),
        ("sandbox", "lvl = 'best'", "unknown key 'lvl' in [sandbox]; did you mean 'level'?"),
        ("runners.a", "prompt = 'file'", "[runners.a] has no 'command', and no program of that name is known; add it"),
        ("runners.a", "command = ' '", "'command' in [runners.a] must not be blank"),
        (
            "runners.a",
            "command = 'x'\nprompt = 'mail'",
            "'prompt' in [runners.a] must be 'file', 'stdin' or 'argument'",
        ),
        ("runners.a", "comand = 'x'", "unknown key 'comand' in [runners.a]; did you mean 'command'?"),
        ("runners", "a = 'x'", "'a' in [runners] must be a mapping (key: value), not 'x'"),
    ],
)
def test_a_wrong_value_is_told_in_plain_words(tmp_path: Path, table: str, text: str, told: str) -> None:
    (said,) = problems(tmp_path, f"[{table}]\n{text}\n")
    line = 1 if "has no" in told else 1 + len(text.splitlines())
    assert said.startswith(f"{line}: {told}")


def test_requiring_stronger_isolation_than_is_to_be_used_is_refused(tmp_path: Path) -> None:
    told = problems(tmp_path, "[sandbox]\nlevel = 'landlock'\nrequire = 'namespaces'\n")
    said = "'require' in [sandbox] asks for more than 'level', which is 'landlock'; make 'level' \"best\""
    assert told == [f"3: {said}"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("[runners.Big]\ncommand = 'x'\n", "1: the name of runner 'Big' must be lower-case letters"),
        ("[runners.scripted]\ncommand = 'x'\n", "1: the runner 'scripted' is built in; give yours another name"),
        (
            "[runners.a]\nprompt = 'stdin'\ncommand = 'x {prompt}'\n",
            "3: 'command' in [runners.a] contains {prompt}, but the prompt goes to its standard input; remove it, or",
        ),
    ],
)
def test_a_runner_that_cannot_be_is_refused(tmp_path: Path, text: str, told: str) -> None:
    (said,) = problems(tmp_path, text)
    assert said.startswith(told)


def test_a_runner_that_a_hive_does_not_have_is_answered_with_the_nearest() -> None:
    settings = Settings(runners={"claude": Runner("claude", "x")})
    settings.check_runner("claude")
    settings.check_runner("scripted")
    with pytest.raises(InputError, match=r"no runner 'cluade'\.\nDid you mean 'claude'"):
        settings.check_runner("cluade")
    with pytest.raises(InputError, match="It knows claude, scripted"):
        settings.check_runner("zzz")


@pytest.mark.parametrize(
    ("said", "seconds"), [("45m", 2700), ("90s", 90), ("1h30m", 5400), ("1d", 86400), ("0.5s", 0.5), ("7", 7), (7, 7)]
)
def test_a_duration_is_read_as_seconds(said: object, seconds: float) -> None:
    assert read_duration(said) == seconds


@pytest.mark.parametrize(
    ("said", "size"),
    [
        ("64MB", 64_000_000),
        ("64mb", 64_000_000),
        ("2GiB", 2 << 30),
        ("3 KB", 3000),
        ("1TiB", 1 << 40),
        ("5B", 5),
        ("5", 5),
    ],
)
def test_a_size_is_read_as_bytes(said: str, size: int) -> None:
    assert read_size(said) == size


def test_an_unknown_key_is_named_with_its_line_and_the_nearest_right_one(tmp_path: Path) -> None:
    assert problems(tmp_path, "[hive]\nworker = 3\n") == ["2: unknown key 'worker' in [hive]; did you mean 'workers'?"]


def test_an_unknown_table_is_named_with_its_line(tmp_path: Path) -> None:
    assert problems(tmp_path, "[hive]\nworkers = 3\n\n[keper]\npoll = 2\n\n[zzz]\n") == [
        "4: unknown key 'keper' in this file; did you mean 'keeper'?",
        (
            "7: unknown key 'zzz' in this file; "
            "known here: hive, keeper, limits, sandbox, queue, mail, budget, prices, runners, patterns"
        ),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "# a\n[ 'keeper' ]\n\"pol\" = 2\n",
        "# a\n# b\nkeeper.pol = 2\n",
        "# a\n# b\n'keeper' . \"pol\" = 2\n",
        "# a\n# b\nkeeper = {pol = 2}\n",
        "# a\n[keeper]\r\npol = 2\r\n",
    ],
)
def test_the_line_is_found_however_the_key_is_written(tmp_path: Path, text: str) -> None:
    assert problems(tmp_path, text) == ["3: unknown key 'pol' in [keeper]; did you mean 'poll'?"]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("workers = 0", "'workers' in [hive] must be a whole number from 1 to 1,000, not 0"),
        ("workers = 1001", "'workers' in [hive] must be a whole number from 1 to 1,000, not 1001"),
        ("workers = '4'", "'workers' in [hive] must be a whole number from 1 to 1,000, not '4'"),
        ("workers = true", "'workers' in [hive] must be a whole number from 1 to 1,000, not true"),
        ("workers = 1979-05-27", "'workers' in [hive] must be a whole number from 1 to 1,000, not a date or time"),
        (f"workers = 0x{'f' * 9999}", "'workers' in [hive] must be a whole number from 1 to 1,000, not that number"),
    ],
)
def test_a_wrong_number_of_workers_is_refused(tmp_path: Path, text: str, told: str) -> None:
    assert problems(tmp_path, f"[hive]\n{text}\n") == [f"2: {told}"]


@pytest.mark.parametrize("key", ["heartbeat", "abandoned_after", "poll"])
@pytest.mark.parametrize("value", ["0", "-1", "'soon'", "'none'", "nan", "inf", "true", "[]"])
def test_a_time_of_the_keeper_that_is_none_is_refused(tmp_path: Path, key: str, value: str) -> None:
    (told,) = problems(tmp_path, f"[keeper]\n{key} = {value}\n")
    assert told.startswith(f"2: '{key}' in [keeper] must be ")


@pytest.mark.parametrize(
    ("key", "value"), [("timeout", "'x'"), ("silence", "0"), ("output", "'5m'"), ("memory", "1.5")]
)
def test_a_limit_that_is_none_is_refused(tmp_path: Path, key: str, value: str) -> None:
    (told,) = problems(tmp_path, f"[limits]\n{key} = {value}\n")
    assert told.startswith(f"2: '{key}' in [limits] must be ")


def test_abandoned_after_less_than_two_heartbeats_is_refused(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, '[keeper]\nheartbeat = "60s"\nabandoned_after = "119s"\n')
    assert told == (
        "3: 'abandoned_after' in [keeper]: 119s is less than 2 times 'heartbeat'; "
        "make it at least 120s, or 'heartbeat' shorter"
    )


def test_a_heartbeat_too_slow_for_the_default_is_refused_on_its_own_line(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, "[keeper]\nheartbeat = 200\n")
    assert told.startswith("2: 'abandoned_after' in [keeper]: 300s is less than 2 times 'heartbeat'")


def test_exactly_two_heartbeats_are_enough(tmp_path: Path) -> None:
    assert load(tmp_path, "[keeper]\nheartbeat = 10\nabandoned_after = 20\n").abandoned_after_s == 20.0


@pytest.mark.parametrize("text", ["hive = 5\n", "[[hive]]\n"])
def test_a_table_that_is_none_is_refused(tmp_path: Path, text: str) -> None:
    (told,) = problems(tmp_path, text)
    assert told.startswith("1: 'hive' in this file must be a mapping (key: value), not ")


def test_several_problems_are_told_together(tmp_path: Path) -> None:
    told = problems(tmp_path, "[hive]\nworker = 1\nworkers = 0\n[keeper]\npoll = 0\n[limits]\nmemory = 0\n")
    assert [line.split(":")[0] for line in told] == ["2", "3", "5", "7"]


def test_a_syntax_error_is_told_with_its_line(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, "[hive]\nworkers = four\n")
    assert told == "2: not TOML: Invalid value; text needs quotes"


def test_a_key_written_twice_is_refused(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, "[hive]\nworkers = 4\nworkers = 5\n")
    assert told.startswith("3: not TOML: Cannot overwrite a value")


def test_a_file_that_is_not_utf8_is_refused_with_the_line(tmp_path: Path) -> None:
    assert problems(tmp_path, b"[hive]\n# \xff\n") == ["2: not UTF-8 text; save the file as UTF-8"]


def test_a_file_over_one_mebibyte_is_refused(tmp_path: Path) -> None:
    expected = [" larger than 1 MiB; this is probably not the file you meant"]
    assert problems(tmp_path, b"#" * ((1 << 20) + 1)) == expected


def test_a_directory_instead_of_the_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "hive.toml").mkdir()
    with pytest.raises(InputError, match="cannot be read: Is a directory"):
        load_settings(tmp_path)


def test_nesting_thousands_of_levels_deep_is_refused(tmp_path: Path) -> None:
    assert problems(tmp_path, "a = " + "[" * 100_000) == [" nested too deep"]
    (told,) = problems(tmp_path, "hive.workers" + ".a" * 5000 + " = 1")
    assert told == "1: 'workers' in [hive] must be a whole number from 1 to 1,000, not a mapping"


def test_a_number_of_thousands_of_digits_is_refused(tmp_path: Path) -> None:
    (told,) = problems(tmp_path, f"[hive]\nworkers = {'9' * 5000}\n")
    assert "not TOML: " in told


VALUES = st.sampled_from(
    ["4", "0", "'60s'", "'none'", "'64MiB'", "1e400", "nan", "[]", "{a=1}", "1979-05-27", '"""\n"""']
)
KEYS = st.sampled_from(
    ["workers", "poll", "heartbeat", "abandoned_after", "timeout", "output", "a.b", "'x'", "hive", "runners.a.command"]
)
LINES = st.sampled_from(
    ["[hive]", "[keeper]", "[limits]", "[sandbox]", "[runners.a]", "[[hive]]", "[a.b]", "#", ""]
) | st.builds("{} = {}".format, KEYS, VALUES)


@settings(deadline=None, max_examples=300)
@given(st.binary(max_size=100) | st.lists(LINES, max_size=8).map(lambda lines: "\n".join(lines).encode()))
def test_any_file_loads_or_is_refused(text: bytes) -> None:
    with tempfile.TemporaryDirectory() as directory:
        try:
            load(Path(directory), text)
        except InputError as error:
            said = str(error)
        else:
            return
    assert ", nothing was done\n" in said
