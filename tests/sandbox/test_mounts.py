"""Mounts as the kernel sees them: what is bound over what, under which names, and what is said when it cannot be."""

import os
import sys
import timeit
from dataclasses import replace
from pathlib import Path

import pytest

from hivekeeper.sandbox.isolation import Isolation, Level, Mounts
from tests.sandbox.prison import CANARY, Prison

ODD_NAMES = ["with blanks in it", "--bind", "-", "käse-日本", "new\nline", "$(touch x)", "quote'\"", "a\\b"]


def test_a_place_to_read_inside_of_one_to_write_cannot_be_written(prison: Prison) -> None:
    (prison.own / "config").mkdir()
    (prison.own / "config" / "file").write_text("word")
    mounts = replace(prison.mounts, read=(str(prison.own / "config"),))
    assert prison.say("cat", "config/file", mounts=mounts) == "word"
    assert prison.run("sh", "-c", "echo other > config/file", mounts=mounts).returncode != 0
    assert prison.run("sh", "-c", "mv config away", mounts=mounts).returncode != 0
    assert (prison.own / "config" / "file").read_text() == "word"


def test_a_place_to_write_inside_of_one_to_read_inside_of_a_hidden_one(prison: Prison) -> None:
    (prison.home / "shown" / "own").mkdir(parents=True)
    (prison.home / "shown" / "word").write_text("word")
    mounts = Mounts(write=(str(prison.home / "shown" / "own"), str(prison.own)), read=(str(prison.home / "shown"),))
    work = f"cd {prison.home}/shown && cat word && echo mine > own/file && ! echo mine 2> /dev/null > file"
    assert prison.say("sh", "-ec", work, mounts=mounts) == "word"
    assert (prison.home / "shown" / "own" / "file").read_text() == "mine\n"
    assert not (prison.home / "shown" / "file").exists()
    assert prison.run("cat", str(prison.home / "secret"), mounts=mounts).returncode != 0


def test_a_hidden_place_inside_of_one_to_write_stays_hidden(prison: Prison) -> None:
    for name in ("deep", "open"):
        (prison.own / name).mkdir()
        (prison.own / name / "secret").write_text(CANARY)
    mounts = Mounts(write=(str(prison.own),), hide=(str(prison.hive), str(prison.own / "deep")))
    assert prison.run("cat", "deep/secret", mounts=mounts).returncode != 0
    assert prison.say("sh", "-c", "cat open/secret && echo more > open/file", mounts=mounts) == CANARY


def test_a_single_file_can_be_a_mount(prison: Prison) -> None:
    (prison.hive / "sign-in").write_text("word")
    mounts = replace(prison.mounts, write=(str(prison.own), str(prison.hive / "sign-in")))
    work = f"cat {prison.hive}/sign-in; echo new > {prison.hive}/sign-in"
    assert prison.say("sh", "-c", work, mounts=mounts) == "word"
    assert (prison.hive / "sign-in").read_text() == "new\n"


@pytest.mark.parametrize("name", ODD_NAMES)
def test_mounts_may_have_any_name(prison: Prison, name: str) -> None:
    for directory in (prison.hive / name, prison.hive / f"{name}-read"):
        directory.mkdir()
        (directory / "file").write_text("word")
    mounts = Mounts(write=(str(prison.hive / name),), read=(f"{prison.hive}/{name}-read",), hide=(str(prison.hive),))
    work = 'cat file "$1/file" && echo mine > own'
    done = prison.run(
        "sh", "-ec", work, "sh", f"{prison.hive}/{name}-read", mounts=mounts, directory=prison.hive / name
    )
    assert (done.returncode, done.stdout) == (0, "wordword"), done.stderr
    assert (prison.hive / name / "own").read_text() == "mine\n"


def test_a_mount_that_is_reached_by_a_link_is_there_under_both_names(prison: Prison) -> None:
    (prison.root / "link").symlink_to(prison.hive / "sandboxes")
    mounts = Mounts(write=(str(prison.root / "link" / "own"),), hide=(str(prison.hive),))
    done = prison.run("touch", f"{prison.root}/link/own/a", f"{prison.own}/b", mounts=mounts)
    assert done.returncode == 0, done.stderr
    assert {path.name for path in prison.own.iterdir()} == {"a", "b"}
    inside = prison.run("pwd", "-P", mounts=mounts, directory=prison.root / "link" / "own")
    assert inside.stdout.strip() == str(prison.own)
    assert prison.run("cat", f"{prison.root}/link/other/secret", mounts=mounts).returncode != 0


def test_a_link_of_an_earlier_worker_opens_no_hidden_place(prison: Prison) -> None:
    (prison.own / "tmp").symlink_to(prison.home)
    mounts = replace(prison.mounts, write=(str(prison.own), str(prison.own / "tmp")))
    assert prison.run("cat", "tmp/secret", mounts=mounts).returncode != 0
    prison.run("touch", "tmp/planted", mounts=mounts)
    assert not (prison.home / "planted").exists()


def test_a_mount_to_write_in_that_is_missing_is_said_and_nothing_starts(prison: Prison) -> None:
    done = prison.run("echo", "started", mounts=replace(prison.mounts, write=(str(prison.own / "missing"),)))
    assert done.returncode != 0
    assert str(prison.own / "missing") in done.stderr
    assert "started" not in done.stdout


def test_what_is_to_be_read_or_hidden_may_be_missing(prison: Prison) -> None:
    mounts = Mounts(
        (str(prison.own),), (str(prison.root / "missing"),), (str(prison.hive), str(prison.hive / "missing"))
    )
    assert prison.say("echo", "started", mounts=mounts) == "started"


def test_a_directory_that_is_hidden_is_said_to_be_missing(cell: Prison) -> None:
    done = cell.run("echo", "started", directory=cell.other)
    assert done.returncode != 0
    assert str(cell.other) in done.stderr


def test_a_command_that_is_missing_is_named(prison: Prison) -> None:
    done = prison.run("no-such-command-anywhere")
    assert done.returncode != 0
    assert "no-such-command-anywhere" in done.stderr


def test_programs_in_a_hidden_home_run_and_their_credentials_stay_hidden(
    prison: Prison, monkeypatch: pytest.MonkeyPatch
) -> None:
    tool = prison.home / ".tool"
    (tool / "bin").mkdir(parents=True)
    (tool / "lib").write_text("word")
    (tool / "credentials").write_text(CANARY)
    (tool / "bin" / "tool").write_text(f"#!/bin/sh\ncat {tool}/lib; cat {tool}/credentials; cat {prison.home}/secret")
    (tool / "bin" / "tool").chmod(0o755)
    (prison.home / "bin").mkdir()
    (prison.home / "bin" / "by-link").symlink_to("../.tool/bin/tool")
    for directory, name in ((tool / "bin", "tool"), (prison.home / "bin", "by-link")):
        monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
        assert prison.run(name).stdout == "word"
    assert "Error" in prison.attempt("import sys; open(sys.argv[1], 'w')", tool / "lib")


def test_a_run_that_is_given_no_search_path_has_the_keepers(prison: Prison, monkeypatch: pytest.MonkeyPatch) -> None:
    (prison.home / "tool" / "bin").mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{prison.home}/tool/bin:{os.environ['PATH']}")
    assert f"{prison.home}/tool" in prison.isolation.wrap(["true"], str(prison.own), prison.mounts, {})


def test_scratch_directories_are_empty_can_be_written_and_are_not_shared(cell: Prison) -> None:
    name = f"hive-{os.getpid()}-scratch"
    for directory in ("/tmp", "/var/tmp", "/dev/shm"):  # noqa: S108 - that nothing arrives there is what is tested
        assert cell.say("sh", "-ec", f"echo word > {directory}/{name}; cat {directory}/{name}") == "word"
        assert not (Path(directory) / name).exists()
    assert cell.run("touch", str(cell.home / "x"), "/run/x").returncode != 0


def test_what_the_settings_bind_is_there_for_every_run(prison: Prison) -> None:
    for name in ("read", "write"):
        (prison.home / name).mkdir()
        (prison.home / name / "word").write_text(name)
    isolation = replace(prison.isolation, read=(str(prison.home / "read"),), write=(str(prison.home / "write"),))
    inside = Prison(prison.root, isolation)
    assert inside.say("cat", f"{prison.home}/read/word", f"{prison.home}/write/word") == "readwrite"
    inside.say("touch", f"{prison.home}/write/new")
    assert inside.run("touch", f"{prison.home}/read/new").returncode != 0


def test_limits_change_nothing_about_the_command(tmp_path: Path) -> None:
    argv = ("agent", "--flag", "")
    assert Isolation(Level.LIMITS, "", "/home/x").wrap(argv, str(tmp_path), Mounts(), {}) == argv


@pytest.mark.alone
def test_wrapping_takes_less_than_a_millisecond(prison: Prison) -> None:
    mounts = replace(prison.mounts, read=("/usr/share", sys.prefix, str(prison.other)))
    environment = prison.environment()

    def wrap() -> None:
        prison.isolation.wrap(["agent"], str(prison.own), mounts, environment)

    assert min(timeit.repeat(wrap, number=10, repeat=20)) / 10 < 0.001


def test_a_server_that_hive_toml_names_runs_inside_and_what_lies_beside_its_directory_stays_hidden(
    prison: Prison,
) -> None:
    tools = prison.home / "tools"
    tools.mkdir()
    (tools / "part.py").write_text("words = 'served'\n")
    (tools / "server.py").write_text("import part, sys\nprint(part.words)\nopen(sys.argv[1], 'w')\n")
    argv = (sys.executable, str(tools / "server.py"))
    assert "No such file" in (said := prison.run(*argv, "x").stderr) or "denied" in said
    named = Prison(prison.root, replace(prison.isolation, named=(str(tools / "server.py"),)))
    assert named.say(*argv, "x") == "served"
    assert named.run(*argv, str(tools / "planted")).returncode != 0
    assert CANARY not in named.attempt("import sys; print(open(sys.argv[1]).read())", prison.home / "secret")
