"""Which program a shell command starts, whatever stands before it."""

import pytest

from hivekeeper.domain.shell import find_script, skip_prefixes, split


@pytest.mark.parametrize(
    "before",
    [
        "",
        "A=1 B='2 3'",
        "env",
        "env -i A=1",
        "env -u HOME --chdir /x A=1",
        "/usr/bin/env",
        "timeout 60",
        "timeout -s KILL -k 5 1.5h",
        'timeout --signal=KILL "$LIMIT"',
        "nice",
        "nice -n 10",
        "nice -10",
        "time -p",
        "exec",
        "exec -a other",
        "command",
        "nohup setsid stdbuf -oL -e 0",
        "ionice -c 3",
        "! ",
        "if !",
        "A=1 exec env B=2 timeout 60 nice -n 5",
    ],
)
def test_what_stands_before_a_program_is_skipped(before: str) -> None:
    assert skip_prefixes(split(f"{before} agent --fast {{prompt}}")) == ["agent", "--fast", "{prompt}"]


def test_nothing_is_left_of_a_command_without_a_program() -> None:
    assert skip_prefixes(split("A=1 timeout 60")) == []
    assert skip_prefixes(split("nice -n")) == []
    assert skip_prefixes([]) == []


@pytest.mark.parametrize(
    ("command", "script"),
    [
        ("python3 -u /opt/agent.py --fast", "/opt/agent.py"),
        ("/usr/bin/python3.11 agent.py", "agent.py"),
        ("bash x.sh", "x.sh"),
        (". ./x.sh", "./x.sh"),
        ("node", ""),
        ("python3 -u | cat x", ""),
        ("agent x.py", ""),
    ],
)
def test_an_interpreters_script_is_found(command: str, script: str) -> None:
    assert find_script(split(command)) == script


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("a 'b c' \"d;e\"f 2>&1", ["a", "b c", "d;ef", "2", ">&", "1"]),
        ("a;b && (c|d)\ne # f", ["a", ";", "b", "&&", "(", "c", "|", "d", ")\n", "e", "#", "f"]),
        (" a\n", ["a"]),
        ("it's torn", ["it's", "torn"]),
    ],
)
def test_a_command_is_split_into_words_and_operators(command: str, words: list[str]) -> None:
    assert split(command) == words
