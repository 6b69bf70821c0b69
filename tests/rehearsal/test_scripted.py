"""The scripted agent: every step does what it says, as a real process, and a seed chooses the same faults for ever."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from hivekeeper.errors import InputError
from hivekeeper.testing.scripted import (
    FAULTS,
    LAST_FAULTY_ATTEMPT,
    STEPS,
    Fault,
    Step,
    Verb,
    choose_fault,
    choose_faults,
    parse_rates,
)

DEADLINE_S = 20.0
OWN_FILE = "rehearsed/T-1.txt"
Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start(tmp_path: Path) -> Start:
    """An agent in a directory of its own; arguments as on its command line, a list of steps as a script."""

    def start_agent(*arguments: str, script: object = None, **environment: str) -> "subprocess.Popen[str]":
        directory = tmp_path / "directory"
        directory.mkdir(exist_ok=True)
        if script is not None:
            (tmp_path / "script.json").write_text(json.dumps(script))
            arguments = (*arguments, str(tmp_path / "script.json"))
        named = {"HIVE_CONVOY": "work", "HIVE_TASK": "T-1", "HIVE_ATTEMPT": "1", **environment}
        argv = (sys.executable, "-P", "-m", "hivekeeper.testing.scripted", *arguments)
        pipe = subprocess.PIPE
        return subprocess.Popen(argv, cwd=directory, env={**os.environ, **named}, stdout=pipe, stderr=pipe, text=True)

    return start_agent


def finish(process: "subprocess.Popen[str]") -> tuple[int, str, str]:
    out, err = process.communicate(timeout=DEADLINE_S)
    return process.returncode, out, err


def read(tmp_path: Path, name: str) -> str:
    return (tmp_path / "directory" / name).read_text()


def test_every_step_and_every_fault_is_in_its_table() -> None:
    assert (set(STEPS), set(FAULTS)) == (set(Verb), set(Fault))


def test_without_faults_it_says_something_and_makes_a_file_of_its_own(start: Start, tmp_path: Path) -> None:
    code, out, _ = finish(start())
    assert (code, out.splitlines()[-1]) == (0, "done")
    assert read(tmp_path, OWN_FILE).startswith("work/T-1, attempt 1\n")


def test_two_tasks_make_two_files_unless_told_otherwise(start: Start, tmp_path: Path) -> None:
    finish(start())
    finish(start(HIVE_TASK="T-2"))
    assert read(tmp_path, OWN_FILE) != read(tmp_path, "rehearsed/T-2.txt")
    finish(start(script=[{"append": "shared.txt"}]))
    finish(start(script=[{"append": "shared.txt"}], HIVE_TASK="T-2"))
    assert [line[:8] for line in read(tmp_path, "shared.txt").splitlines()[::2]] == ["work/T-1", "work/T-2"]


def test_the_file_it_makes_can_be_named(start: Start, tmp_path: Path) -> None:
    finish(start("--file", "out/report.md"))
    assert read(tmp_path, "out/report.md")


def test_it_makes_as_many_files_as_are_named(start: Start, tmp_path: Path) -> None:
    finish(start("--file", "a.txt", "--file", "out/b.txt"))
    assert read(tmp_path, "a.txt") == read(tmp_path, "out/b.txt")


def test_a_bomb_is_as_many_processes_as_asked(start: Start) -> None:
    process = start(script=[{"bomb": 5}, {"say": "lit"}, "hang"])
    assert process.stdout is not None
    process.stdout.readline()
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for pid in children:
        os.kill(int(pid), signal.SIGKILL)
    process.kill()
    assert len(children) == 5
    finish(process)


def test_what_fills_the_disk_does_so_with_many_files(start: Start, tmp_path: Path) -> None:
    assert finish(start(script=[{"fill": 3 << 20}]))[0] == 0
    assert [path.stat().st_size for path in (tmp_path / "directory").iterdir()] == [1 << 20] * 3


def test_it_wrecks_a_sandbox_and_nothing_else(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    for outside in ("", str(tmp_path), str(tmp_path.parent)):
        finish(start(script=["edit", "wreck"], HIVE_ROOT=outside))
        assert read(tmp_path, OWN_FILE)
    (tmp_path / ".hive").mkdir()
    (tmp_path / ".hive" / "sandboxes").symlink_to(tmp_path)
    finish(start(script=["wreck"], HIVE_ROOT=str(tmp_path)))
    assert read(tmp_path, OWN_FILE), "a directory elsewhere is none of the hive's"
    (tmp_path / ".hive" / "sandboxes").unlink()
    (tmp_path / ".hive" / "sandboxes" / "T.1").mkdir(parents=True)
    (directory / ".git").mkdir()
    directory.rename(tmp_path / ".hive" / "sandboxes" / "T.1" / "work")
    directory.symlink_to(tmp_path / ".hive" / "sandboxes" / "T.1" / "work")
    finish(start(script=["wreck"], HIVE_ROOT=str(tmp_path)))
    assert list(directory.iterdir()) == []


def test_whoever_runs_git_where_a_trap_is_springs_it(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    subprocess.run(("git", "init", "-q", "-b", "main", str(directory)), check=True)
    finish(start("--marks", str(tmp_path / "marks"), script=["edit", "commit", "append", "trap"]))
    assert not (tmp_path / "canary").exists(), "its own git ran before"
    for argv in (("git", "status"), ("git", "add", "."), ("git", "checkout", "-q", "-b", "other")):
        subprocess.run(argv, cwd=directory, check=False, stdin=subprocess.DEVNULL, capture_output=True)
    sprung = (tmp_path / "canary").read_text()
    assert sprung.startswith("work/T-1 1: ")
    assert "hooks/post-checkout" in sprung, "a hook"
    assert ".git/canary" in sprung, "a filter, or what is asked about changes"


def test_it_commits_in_its_own_clone(start: Start, tmp_path: Path) -> None:
    directory = tmp_path / "directory"
    subprocess.run(("git", "init", "-q", "-b", "main", str(directory)), check=True)
    assert finish(start(script=["edit", {"commit": "a change"}]))[0] == 0
    shown = subprocess.run(
        ("git", "-C", directory, "show", "--format=%s", "--name-only"), capture_output=True, check=True, text=True
    )
    assert shown.stdout.split("\n\n") == ["a change", f"{OWN_FILE}\n"]


def test_it_commits_nothing_in_a_plain_directory_inside_a_repository(start: Start, tmp_path: Path) -> None:
    subprocess.run(("git", "init", "-q", "-b", "main", str(tmp_path)), check=True)
    assert finish(start(script=["edit", "commit"]))[0] == 0
    seen = subprocess.run(("git", "-C", tmp_path, "diff", "--cached", "--name-only"), capture_output=True, check=True)
    assert seen.stdout == b""


def test_thinking_and_slow_work_are_never_silent(start: Start) -> None:
    assert finish(start(script=[{"think": 0}, {"say": "hello"}]))[1].split() == ["thinking", "hello"]
    said = finish(start(script=[{"slow": 0.5}]))[1].split()
    assert set(said) == {"thinking"}
    assert len(said) >= 2, "on a busy machine a word comes late"


def test_a_flood_is_as_large_as_asked(start: Start) -> None:
    assert len(finish(start(script=[{"flood": 300_000}]))[1]) == 300_000 // 1024 * 1024


def test_a_crash_has_its_code_and_plays_nothing_after_it(start: Start) -> None:
    code, out, _ = finish(start(script=[{"crash": 3}, {"say": "too late"}]))
    assert (code, out) == (3, "")


def test_it_dies_of_sigkill(start: Start) -> None:
    assert finish(start(script=["die"]))[0] == -signal.SIGKILL


def test_a_lie_is_a_good_ending_without_a_change(start: Start, tmp_path: Path) -> None:
    assert finish(start(script=["lie", "edit"]))[0] == 0
    assert list((tmp_path / "directory").iterdir()) == []


def test_half_a_file_is_the_beginning_of_the_whole_one(start: Start, tmp_path: Path) -> None:
    assert finish(start(script=["half"]))[0] == 1
    half = read(tmp_path, OWN_FILE)
    finish(start(script=["edit"]))
    whole = read(tmp_path, OWN_FILE)
    assert whole.startswith(half)
    assert 0 < len(half) < len(whole)


def test_what_hangs_ends_at_sigterm(start: Start) -> None:
    process = start(script=[{"say": "ready"}, "hang"])
    assert process.stdout is not None
    process.stdout.readline()
    assert process.poll() is None
    process.terminate()
    assert finish(process)[0] == -signal.SIGTERM


def test_what_ignores_sigterm_ends_only_at_sigkill(start: Start) -> None:
    process = start(script=["ignore-sigterm", {"say": "ready"}, "hang"])
    assert process.stdout is not None
    process.stdout.readline()
    process.terminate()
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(0.3)
    process.kill()
    assert finish(process)[0] == -signal.SIGKILL


def test_what_forks_away_leaves_a_process_with_its_marker_in_a_session_of_its_own(start: Start) -> None:
    process = start(script=["fork-away"], HIVE_RUN=f"a-hive/{os.getpid()}")
    assert process.wait(DEADLINE_S) == 0
    marker = f"HIVE_RUN=a-hive/{os.getpid()}".encode()
    left = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _carries(entry, marker)]
    sessions = [os.getsid(pid) for pid in left]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert len(left) == 1
    assert sessions == left
    finish(process)


def _carries(process: Path, marker: bytes) -> bool:
    try:
        return marker in (process / "environ").read_bytes().split(b"\0")
    except OSError:
        return False


def test_it_marks_its_beginning_whatever_comes_then(start: Start, tmp_path: Path) -> None:
    marks = tmp_path / "marks"
    for attempt in ("1", "2"):
        finish(start("--marks", str(marks), script=["die"], HIVE_ATTEMPT=attempt))
    assert marks.read_text() == "work/T-1 1\nwork/T-1 2\n"


@pytest.mark.parametrize(
    ("script", "sentence"),
    [
        (["thnik"], "step 1: there is no step 'thnik'. Did you mean 'think'?"),
        (["think", {"crash": "loud"}], "step 2: 'crash' takes a number from 0 on."),
        ([{"think": -1}], "step 1: 'think' takes a number from 0 on."),
        ([{"edit": 4}], "step 1: 'edit' takes text."),
        ([{"die": 4}], "step 1: 'die' takes nothing."),
        ([["edit"]], "step 1 is neither a word nor a word with what it takes"),
        ([{"edit": "a", "die": None}], "step 1 is neither a word nor a word with what it takes"),
        ({"edit": "a"}, "is not a list of steps."),
    ],
)
def test_a_wrong_script_is_refused_in_a_sentence_before_anything_is_done(
    start: Start, tmp_path: Path, script: object, sentence: str
) -> None:
    code, _, err = finish(start("--marks", str(tmp_path / "marks"), script=script))
    assert code == 2
    assert sentence in err
    assert not (tmp_path / "marks").exists()


@pytest.mark.parametrize(
    ("arguments", "environment", "sentence"),
    [
        (("nowhere.json",), {}, "nowhere.json cannot be read"),
        (("/dev/null",), {}, "/dev/null is not JSON"),
        (("--faults", "crahs=0.1"), {}, "There is no fault 'crahs'. Did you mean 'crash'?"),
        (("--faults", "crash=1", "a.json"), {}, "a script and faults do not go together"),
        ((), {"HIVE_TASK": ""}, "HIVE_CONVOY, HIVE_TASK, HIVE_ATTEMPT must say which attempt this is."),
        ((), {"HIVE_ATTEMPT": "one"}, "must say which attempt this is."),
    ],
)
def test_a_wrong_command_line_is_refused_in_a_sentence(
    start: Start, arguments: tuple[str, ...], environment: dict[str, str], sentence: str
) -> None:
    code, _, err = finish(start(*arguments, **environment))
    assert code == 2
    assert sentence in err


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("hagn=0.1", "There is no fault 'hagn'. Did you mean 'hang'?"),
        ("", "There is no fault ''."),
        ("crash", "'crash' has no rate."),
        ("crash=often", "'crash=often' has no rate."),
        ("crash=1.5", "The rate of 'crash' is 1.5; it must be between 0 and 1."),
        ("crash=-0.1", "it must be between 0 and 1."),
        ("crash=nan", "it must be between 0 and 1."),
        ("crash=0.1,crash=0.2", "The fault 'crash' is given twice; keep one."),
        ("crash=0.7,hang=0.7", "The rates add up to 1.4."),
    ],
)
def test_wrong_rates_are_refused_in_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_rates(text)
    assert sentence in str(caught.value)


def test_rates_are_read_as_they_are_written() -> None:
    assert parse_rates("crash=0.2, hang=.1,die=0") == {Fault.CRASH: 0.2, Fault.HANG: 0.1, Fault.DIE: 0.0}
    assert parse_rates("none") == {}


def test_the_same_seed_task_and_attempt_have_the_same_fault_for_ever() -> None:
    rates = parse_rates("crash=0.3,hang=0.3,fork=0.3")
    chosen = [choose_fault(7, f"T-{number}", 1, rates) for number in range(8)]
    # Written down once: a choice that depended on anything but its arguments would not be these.
    assert chosen == [None, "fork", "hang", "crash", "fork", "crash", "fork", "crash"]
    assert len({tuple(choose_fault(seed, f"T-{n}", 1, rates) for n in range(20)) for seed in range(20)}) == 20


def test_each_fault_is_as_frequent_as_its_rate() -> None:
    rates = parse_rates("crash=0.2,hang=0.1,lie=0.05,half=0.25")
    counts = Counter(choose_fault(1, f"T-{number}", 1, rates) for number in range(10_000))
    for fault in Fault:
        assert abs(counts[fault] / 10_000 - rates.get(fault, 0.0)) < 0.02, fault


def test_rates_of_one_and_none_are_certainties() -> None:
    tasks = [f"T-{number}" for number in range(200)]
    assert {choose_fault(1, task, 1, {Fault.LIE: 1.0}) for task in tasks} == {Fault.LIE}
    assert {choose_fault(1, task, 1, {}) for task in tasks} == {None}


def test_after_the_third_attempt_there_are_no_faults() -> None:
    certain = {Fault.CRASH: 1.0}
    assert choose_faults(1, "T-1", LAST_FAULTY_ATTEMPT, certain)[-1] == Step(Verb.CRASH)
    assert choose_faults(1, "T-1", LAST_FAULTY_ATTEMPT + 1, certain) == []
    assert LAST_FAULTY_ATTEMPT == 3


@pytest.mark.parametrize(("fault", "code"), [("crash", 1), ("lie", 0), ("die", -9), ("half", 1)])
def test_a_chosen_fault_is_played(start: Start, fault: str, code: int) -> None:
    assert finish(start("--seed", "1", "--faults", f"{fault}=1"))[0] == code
    assert finish(start("--seed", "1", "--faults", f"{fault}=1", HIVE_ATTEMPT="4"))[0] == 0
