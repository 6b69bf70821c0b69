"""`hive seance` as a person types it."""

from tests.e2e.conftest import Shell

PLAN = """
convoy: c
tasks:
  - id: a
    outputs: [a]
    attempts: 1
    command: "printf 'boom \\\\033[2J the heron listens on port 7431\\\\n' >&2; exit 3"
"""


def test_what_failed_is_cited_and_its_words_cannot_touch_the_terminal(shell: Shell) -> None:
    assert "Nothing that agents did has been collected yet." in _ask_early(shell)
    shell.hive("run", shell.plan(PLAN), code=1)
    said = shell.hive("seance", "a", "Which port does the heron use?")
    assert "the heron listens on port 7431 [c/a.1.agent/output:1]" in said
    assert "\x1b" not in said
    assert "rejected: attempt 1 failed: exit code 3" in shell.hive("seance", "c/a")
    found = shell.json("seance", "a")
    assert (found["about"], found["is_behind"], found["worked"]) == ("c/a", False, [])
    assert "c/a.1.agent/output" in {each["document"] for each in found["failed"]}
    assert "There is no task 'nobody'" in shell.hive("seance", "nobody", code=2)


def _ask_early(shell: Shell) -> str:
    shell.plan("convoy: early\ntasks: [{id: early, command: 'true'}]\n", "early.yaml")
    shell.hive("convoy", "submit", "early.yaml")
    said = shell.hive("seance", "early", code=5)
    shell.hive("task", "cancel", "early")
    return said
