"""A person brings back what a worker made, as files in a new directory, and nothing of the hive is touched."""

import io
import json
import shlex
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path
from typing import Any

import pytest

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.git.restore import new_directory, unpack_rest
from tests.scenarios.conftest import Scene
from tests.stage import Repository


def _hive(stage: Scene, *arguments: str, code: int = 0, before: tuple[str, ...] = ()) -> str:
    argv = (*before, sys.executable, "-m", "hivekeeper", "task", "restore", *arguments)
    done = subprocess.run(argv, cwd=stage.root, capture_output=True, text=True, check=False)
    assert done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout + done.stderr


def _json(stage: Scene, *arguments: str) -> Any:  # noqa: ANN401 - whatever the command prints
    return json.loads(_hive(stage, *arguments, "--json"))


def _fail_twice(stage: Scene, repository: Repository) -> None:
    """Two attempts fail; the second, which is the successor of the first, goes on from what that left."""
    repository.commit({".gitignore": "ignored\n"}, "ignore")
    command = "echo $HIVE_ATTEMPT > made.$HIVE_ATTEMPT; echo $HIVE_ATTEMPT > ignored; exit 1"
    stage.submit(TaskSpec("A", command, repo="app", attempts=2), repos=(repository.spec(),))
    assert stage.finish() is ConvoyState.FAILED


def test_what_is_kept_is_listed_newest_first_with_what_changed_where_it_began(
    stage: Scene, repository: Repository
) -> None:
    _fail_twice(stage, repository)
    rows = _json(stage, "A", "--list")
    assert [(row["attempt"], row["kind"], row["changed"]) for row in rows] == [
        (2, "end of attempt", 1),
        (2, "ignored files", None),
        (1, "end of attempt", 1),
        (1, "ignored files", None),
    ]
    mirror = str(stage.hive.places.mirror("app"))
    refs = ("attempts/work/A/2", "rest/work/A/2", "attempts/work/A/1", "rest/work/A/1")
    objects = [repository.git("--git-dir", mirror, "rev-parse", f"refs/hive/{ref}") for ref in refs]
    assert [row["object"] for row in rows] == objects
    assert rows[0]["at"] == next(run.ended_at for run in stage.runs("A", 2) if run.kind == "snapshot")
    assert len(_json(stage, "A", "--list", "--attempt", "1")) == 2
    said = _hive(stage, "A", "--list")
    assert "end of attempt" in said
    assert "hive task restore work/A" in said


def test_the_newest_comes_back_beside_where_the_person_stands_and_an_older_one_by_its_number(
    stage: Scene, repository: Repository
) -> None:
    _fail_twice(stage, repository)
    said = _hive(stage, "A")
    newest = stage.root / "A.2"
    assert "Restored the work of attempt 2 at work/A (end of attempt" in said
    found = {str(path.relative_to(newest)): path.read_text() for path in newest.rglob("*") if path.is_file()}
    assert found == {
        ".gitignore": "ignored\n",
        "README": "hello\n",
        "ignored": "2\n",
        "made.1": "1\n",
        "made.2": "2\n",
    }
    assert _json(stage, "work/A", "--attempt", "1", "--to", "first")["to"] == str(stage.root / "first")
    assert sorted(path.name for path in (stage.root / "first").iterdir()) == [
        ".gitignore",
        "README",
        "ignored",
        "made.1",
    ]


def test_the_command_that_shows_the_change_works_as_it_is_printed(stage: Scene, repository: Repository) -> None:
    _fail_twice(stage, repository)
    look = _hive(stage, "A").splitlines()[-1].partition("To see the changes: ")[2]
    shown = subprocess.run(("sh", "-c", look), cwd="/", capture_output=True, text=True, check=True).stdout
    assert "+++ b/made.2\n" in shown
    assert "made.1" not in shown
    assert shlex.split(look)[0] == "git"


def test_a_directory_that_is_not_empty_a_file_and_the_hives_own_place_are_refused(
    stage: Scene, repository: Repository
) -> None:
    _fail_twice(stage, repository)
    (stage.root / "A.2").mkdir()
    (stage.root / "A.2" / "mine").write_text("mine\n")
    said = _hive(stage, "A", code=2)
    assert "A.2 exists already and is not empty." in said
    assert "Type: hive task restore work/A --attempt 2 --to ANOTHER-DIRECTORY" in said
    assert [path.name for path in (stage.root / "A.2").iterdir()] == ["mine"]
    assert "is not a directory" in _hive(stage, "A", "--to", "hive.toml", code=2)
    assert "inside the hive's own directory" in _hive(stage, "A", "--to", ".hive/kept/x", code=2)
    (stage.root / "empty").mkdir()
    _hive(stage, "A", "--to", "empty")
    assert (stage.root / "empty" / "made.2").exists()


def test_where_nothing_is_kept_the_answer_says_why(stage: Scene, repository: Repository) -> None:
    stage.submit(
        TaskSpec("never", "true", repo="app", after=("plain",)),
        TaskSpec("plain", "exit 1", attempts=1),
        TaskSpec("A", "exit 1", repo="app", attempts=1),
        repos=(repository.spec(),),
    )
    stage.finish()
    assert "it has had no worker yet" in _hive(stage, "never", "--list")
    assert "it has had no worker yet" in _hive(stage, "never", code=2)
    assert "directly in the hive's directory" in _hive(stage, "plain", code=2)
    assert _json(stage, "plain", "--list") == []
    said = _hive(stage, "A", "--attempt", "7", code=2)
    assert "Nothing is saved of attempt 7 at work/A." in said
    assert "hive task restore work/A --list" in said
    assert "There is no task 'B'" in _hive(stage, "B", code=2)


def test_outputs_of_a_failed_attempt_without_a_repository_come_back_and_missing_ones_are_named(stage: Scene) -> None:
    command = "mkdir out; echo half > out/one; exit 1"
    stage.submit(TaskSpec("A", command, outputs=("out/one", "out/two"), attempts=1))
    assert stage.finish() is ConvoyState.FAILED
    assert [(row["kind"], row["changed"]) for row in _json(stage, "A", "--list")] == [("outputs", 1)]
    said = _json(stage, "A")
    assert (stage.root / "A.1" / "out" / "one").read_text() == "half\n"
    assert said["not_kept"] == ["out/two (missing, or not a regular file)"]


def test_a_hive_that_cannot_be_written_is_read_and_left_as_it_is_also_under_a_keeper(
    stage: Scene, repository: Repository
) -> None:
    bwrap = shutil.which("bwrap")
    assert bwrap is not None
    _fail_twice(stage, repository)
    assert stage.keeper is not None
    before = _photograph(stage.root)
    out = stage.root.parent / "out"
    locked = (bwrap, "--dev-bind", "/", "/", "--ro-bind", str(stage.root), str(stage.root))
    _hive(stage, "A", "--to", str(out), before=locked)
    assert (out / "made.2").read_text() == "2\n"
    assert _photograph(stage.root) == before
    assert stage.task("A").state is TaskState.FAILED


def _photograph(root: Path) -> dict[str, bytes]:
    """Everything but what SQLite shares between its readers."""
    files = (path for path in root.rglob("*") if path.is_file() and not path.name.endswith("-shm"))
    return {str(path): path.read_bytes() for path in files}


def test_interrupted_in_the_middle_it_can_be_typed_again(stage: Scene, repository: Repository) -> None:
    _fail_twice(stage, repository)
    left = stage.root / "A.2.hive-new"
    left.mkdir()
    (left / "half").write_text("x\n")
    _hive(stage, "A")
    assert not left.exists()
    assert not (stage.root / "A.2" / "half").exists()
    with pytest.raises(KeyboardInterrupt):
        _interrupt(stage.root / "B.1")
    assert not list(stage.root.glob("B.1*"))


def _interrupt(to: Path) -> None:
    with new_directory(to) as draft:
        (draft / "half").write_text("x\n")
        raise KeyboardInterrupt


def _member(
    name: str, kind: bytes = tarfile.REGTYPE, link: str = "", content: bytes = b""
) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, len(content)
    return info, content


def test_nothing_of_a_tar_is_written_outside_or_through_a_link(
    stage: Scene, repository: Repository, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    top = tmp_path / "top"
    top.mkdir()
    (top / "from-the-tree").symlink_to(outside)
    members = [
        _member("/absolute", content=b"x"),
        _member("../above", content=b"x"),
        _member("in/../../above", content=b"x"),
        _member("from-the-tree/file", content=b"x"),
        _member("out", tarfile.SYMTYPE, str(outside)),
        _member("up", tarfile.SYMTYPE, "../outside"),
        _member("out/file", content=b"fine: the link was refused"),
        _member("pipe", tarfile.FIFOTYPE),
        _member(".git/config", content=b"[core]"),
        _member("good", content=b"g"),
        _member("deep/link", tarfile.SYMTYPE, "../good"),
        _member("loop", tarfile.SYMTYPE, "loop"),
        _member("also", tarfile.LNKTYPE, "good"),
    ]
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for info, content in members:
            tar.addfile(info, io.BytesIO(content))
    git = ("git", "-C", str(repository.path))
    blob = subprocess.run(
        (*git, "hash-object", "-w", "--stdin"), input=buffer.getvalue(), capture_output=True, check=True
    )
    unpacked = unpack_rest(repository.path / ".git", blob.stdout.decode().strip(), top)
    refused = {"/absolute", "../above", "in/../../above", "from-the-tree/file", "out", "up", "pipe", ".git/config"}
    assert set(unpacked.refused) == refused
    assert list(outside.iterdir()) == []
    assert not (tmp_path / "above").exists()
    assert (top / "good").read_bytes() == b"g"
    assert (top / "also").read_bytes() == b"g"
    assert (top / "deep" / "link").read_bytes() == b"g"
    assert (top / "loop").readlink() == Path("loop")
