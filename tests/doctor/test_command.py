"""`hive doctor` as a person types it: exit codes, the table, `--json`."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.doctor.conftest import Lingering, Patient
from tests.needs import small_disk


def _type(root: Path, *arguments: str) -> tuple[int, str]:
    argv = (sys.executable, "-m", "hivekeeper", "doctor", *arguments)
    done = subprocess.run(argv, cwd=root, capture_output=True, text=True, timeout=60, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def _json(root: Path, *arguments: str) -> tuple[int, Any]:
    code, said = _type(root, "--json", *arguments)
    return code, json.loads(said)


def test_a_hive_without_a_finding_ends_with_0_and_says_what_was_looked_at(patient: Patient) -> None:
    code, said = _type(patient.root)
    if "MiB are free →" not in said:  # that much is for whoever runs the tests to free
        assert code == 0
        assert "Nothing is wrong with this hive." in said
    assert "workers are isolated by" in said


def test_what_is_wrong_comes_first_with_what_to_type(patient: Patient) -> None:
    (patient.places.mirror("app") / "HEAD.lock").touch()
    code, said = _type(patient.root)
    assert code == 1
    assert said.index("HEAD.lock") < said.index("unbroken chain")
    assert "Type: hive doctor --fix" in said


def test_fixing_says_what_was_done(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    _, shown = _json(patient.root, "--fix")
    assert shown["summary"]["done"] == [f"Removed {lock}."]
    assert all(finding["check"] != "locks" or finding["level"] == "OK" for finding in shown["findings"])


def test_json_has_every_finding_and_a_summary(patient: Patient) -> None:
    patient.sql("UPDATE event SET why = 'x' WHERE seq = 2")
    code, shown = _json(patient.root)
    assert code == shown["summary"]["exit_code"] == 4
    assert shown["summary"]["FAIL"] == 1
    (wrong,) = (finding for finding in shown["findings"] if finding["level"] == "FAIL")
    assert set(wrong) == {"check", "level", "what", "advice", "fixable"}
    assert (wrong["check"], wrong["fixable"]) == ("log", False)


def test_names_of_strangers_are_made_harmless(patient: Patient) -> None:
    (patient.places.runs / "work" / os.fsdecode(b"\x1b[2J\xff.1.agent")).mkdir()
    for arguments in ((), ("--json",)):
        code, said = _type(patient.root, *arguments)
        assert code == 1
        assert "\x1b" not in said


def test_fixing_under_a_living_keeper_is_3(patient: Patient) -> None:
    argv = (sys.executable, "-m", "hivekeeper", "up")
    keeper = subprocess.Popen(argv, cwd=patient.root, stdout=subprocess.PIPE, text=True)
    try:
        assert keeper.stdout is not None
        assert keeper.stdout.readline().startswith("The keeper of ")
        code, said = _type(patient.root, "--fix")
        assert code == 3
        assert "Another keeper is active" in said
        code, said = _type(patient.root)
        assert "is alive; its last heartbeat" in said
    finally:
        keeper.terminate()
        keeper.communicate()


def test_a_doctor_called_from_inside_an_ended_run_does_not_kill_itself(patient: Patient) -> None:
    marker = f"{patient.hive}/work/C.1.agent"
    lingering = Lingering(marker)
    try:
        argv = (sys.executable, "-m", "hivekeeper", "doctor", "--fix")
        done = subprocess.run(
            argv, cwd=patient.root, env={**os.environ, "HIVE_RUN": marker}, capture_output=True, text=True, check=False
        )
        assert done.returncode == 1
        assert "this command runs inside it" in done.stdout
        assert lingering.is_alive()
    finally:
        lingering.end()


def test_without_git_it_is_5_and_the_rest_is_said(patient: Patient, tmp_path: Path) -> None:
    argv = (sys.executable, "-m", "hivekeeper", "doctor", "--json")
    done = subprocess.run(
        argv, cwd=patient.root, env={**os.environ, "PATH": str(tmp_path)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 5, done.stderr
    found = json.loads(done.stdout)["findings"]
    assert any(f["check"] == "git" and "not installed" in f["what"] for f in found)
    assert any(f["check"] == "log" and f["level"] == "OK" for f in found)


@pytest.mark.parametrize(("missing", "package"), [("flock", "util-linux"), ("sync", "coreutils")])
def test_without_a_tool_that_git_scripts_need_it_is_5(
    patient: Patient, tmp_path: Path, missing: str, package: str
) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    for tool in {"git", "flock", "sync"} - {missing}:
        (tools / tool).symlink_to(shutil.which(tool) or tool)
    argv = (sys.executable, "-m", "hivekeeper", "doctor", "--json")
    done = subprocess.run(
        argv, cwd=patient.root, env={**os.environ, "PATH": str(tools)}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 5, done.stderr
    (found,) = (f for f in json.loads(done.stdout)["findings"] if f["check"] == "git")
    assert f"{missing} is not installed" in found["what"]
    assert package in found["advice"]


def test_a_read_only_directory_is_5_and_not_a_damaged_ledger(patient: Patient, tmp_path: Path) -> None:
    with small_disk(tmp_path / "disk", "size=32m") as disk:
        subprocess.run(("cp", "-a", str(patient.root), str(disk)), check=True)
        subprocess.run(("mount", "-o", "remount,ro", str(disk)), check=True)
        code, shown = _json(disk / "hive")
        assert code == 5
        assert any("cannot be written" in f["what"] for f in shown["findings"] if f["level"] == "FAIL")
        code, shown = _json(disk / "hive", "--fix")
        assert code == 5
        assert shown["summary"]["done"] == []
