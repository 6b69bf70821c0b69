"""`--fix` repairs exactly what is safe, once, and leaves everything else as it is."""

import fcntl
import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivekeeper.clock import SystemClock
from hivekeeper.commands.plans import submit_plan
from hivekeeper.doctor.findings import Check, Report
from hivekeeper.domain.plan import PlanSpec, TaskSpec
from hivekeeper.errors import AnotherKeeperError
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.store import queries
from hivekeeper.store.ledger import read_events
from hivekeeper.store.replay import encode_state, rebuilt
from hivekeeper.store.sqlite import reading_only
from tests.doctor.conftest import Lingering, Patient, list_wrong
from tests.stage import ME

LOCKS = (
    "index.lock",
    "HEAD.lock",
    "config.lock",
    "packed-refs.lock",
    "shallow.lock",
    "refs/heads/main.lock",
    "refs/hive/attempts/work/A/1.lock",
    "refs/hive/attempts/work/A/1.head.lock",
    "objects/info/commit-graph.lock",
    "objects/17/tmp_obj_Xa81bc",
    "objects/pack/tmp_pack_Xa81bc",
)


def _repairs(patient: Patient, path: Path) -> Report:
    """The only finding is about this path; it is gone after repairing, all is well, and a second time does nothing."""
    (found,) = patient.find_wrong()
    assert str(path) in found.what
    assert found.fix is not None
    report = patient.repair()
    assert [line for line in report.done if str(path) in line] == list(report.done)
    assert len(report.done) == 1
    assert not path.exists()
    assert list_wrong(report) == []
    _has_nothing_to_do(patient)
    return report


def _has_nothing_to_do(patient: Patient) -> None:
    events = patient.count_events()
    again = patient.repair()
    assert (again.done, again.left) == ((), ())
    assert patient.count_events() == events


def _refuses(patient: Patient, path: Path, reason: str) -> None:
    """A finding about this path says why it is left, and repairing leaves it."""
    assert [f.what for f in patient.find_wrong() if str(path) in f.what and reason in f.what and f.fix is None]
    report = patient.repair()
    assert not [line for line in report.done if str(path) in line]
    assert path.exists()
    assert [finding for finding in list_wrong(report) if str(path) in finding.what and reason in finding.what]


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_git_left_in_the_mirror_is_removed(patient: Patient, name: str) -> None:
    path = patient.places.mirror("app") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    _repairs(patient, path)


@pytest.mark.parametrize("name", ["packed-refs.lock", "refs/heads/main.lock", "objects/pack/tmp_pack_Xa81bc"])
def test_a_lock_git_left_in_the_public_repository_is_removed(patient: Patient, name: str) -> None:
    path = patient.places.public("app") / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    _repairs(patient, path)


def test_half_received_objects_are_removed_as_a_whole(patient: Patient) -> None:
    path = patient.places.mirror("app") / "objects" / "tmp_objdir-incoming-Xa81bc"
    (path / "17").mkdir(parents=True)
    (path / "17" / "tmp_obj_x").touch()
    _repairs(patient, path)


@pytest.mark.parametrize("kind", ["repos", "public"])
def test_a_mirror_whose_making_was_cut_off_is_removed(patient: Patient, kind: str) -> None:
    _repairs(patient, _begin_mirror(patient, kind))
    assert patient.places.mirror("app").is_dir()
    assert patient.places.public("app").is_dir()


def test_a_mirror_that_may_be_in_the_making_stays(patient: Patient) -> None:
    draft = _begin_mirror(patient)
    lingering = Lingering(f"{patient.hive}/_repos/app.9.fetch")
    try:
        _refuses(patient, draft, "_repos/app.9.fetch may be running")
    finally:
        lingering.end()


def _begin_mirror(patient: Patient, kind: str = "repos") -> Path:
    draft = patient.places.hive / kind / "app.git.new"
    (draft / "refs").mkdir(parents=True)
    (draft / "HEAD").write_text("ref: refs/heads/main\n")
    return draft


def test_the_lock_file_the_kernel_locks_stays(patient: Patient) -> None:
    path = patient.places.mirror("app") / "hive.lock"
    path.touch()
    assert patient.find_wrong() == []
    assert path.exists()


def test_a_lock_stays_while_a_process_of_the_hive_lives(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    lingering = Lingering(f"{patient.hive}/work/Z.1.agent")
    try:
        _refuses(patient, lock, "work/Z.1.agent may be running")
    finally:
        lingering.end()


def test_a_lock_stays_while_a_run_may_yet_start(patient: Patient) -> None:
    _intend_run(patient)
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    _refuses(patient, lock, "work/D.1.agent may be running")


def _intend_run(patient: Patient) -> None:
    """Have a keeper intend a run and stop before it starts it."""
    hive = open_hive(patient.root)
    with hive.ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("work", (TaskSpec("D", "true"),), ()))
    keeper = Keeper(hive)
    (dispatcher,) = (loop for loop in keeper.loops if loop.name == "dispatcher")
    dispatcher.run_once()
    keeper.close()
    hive.close()


@pytest.mark.parametrize("name", ["claim.{}", "exit.{}.0", "exit.{}.12"])
def test_a_draft_of_a_dead_process_is_removed_and_the_record_stays(patient: Patient, name: str, dead_pid: int) -> None:
    directory = patient.places.runs / "work" / "C.1.agent"
    draft = directory / name.format(dead_pid)
    draft.write_text("{")
    _repairs(patient, draft)
    assert {path.name for path in directory.iterdir()} >= {"claim", "exit"}


def test_a_draft_of_a_living_process_stays(patient: Patient) -> None:
    draft = patient.places.runs / "work" / "C.1.agent" / f"exit.{os.getpid()}.0"
    draft.write_text("{")
    assert patient.find_wrong() == []


def test_drafts_behind_a_link_are_not_touched(patient: Patient, tmp_path: Path, dead_pid: int) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / f"claim.{dead_pid}").touch()
    (patient.places.runs / "work" / "Z.1.agent").symlink_to(elsewhere)
    assert patient.repair().done == ()
    assert (elsewhere / f"claim.{dead_pid}").exists()


def test_a_sandbox_that_came_back_is_removed_since_its_work_is_kept(patient: Patient, sandbox_of_b: Path) -> None:
    _repairs(patient, sandbox_of_b)


def test_a_gate_that_came_back_is_removed(patient: Patient) -> None:
    gate = patient.places.gate("work/A", 1)
    (gate / "work").mkdir(parents=True)
    (gate / "work" / "a").write_text("a\n")
    (gate / "index").touch()
    _repairs(patient, gate)


def test_what_the_hive_itself_writes_into_a_sandbox_makes_no_doubt(patient: Patient, sandbox_of_b: Path) -> None:
    for name in ("base", "index", "index.lock", "ignored", "rest.tar", "save", "save.paths"):
        (sandbox_of_b / name).write_text("written by the snapshot\n")
    _repairs(patient, sandbox_of_b)


def test_a_sandbox_of_which_a_snapshot_could_not_keep_everything_is_never_removed(
    patient: Patient, sandbox_of_b: Path
) -> None:
    # The tables are changed to plant it, so nothing at all is repaired; the finding itself has to be right as well.
    patient.sql("UPDATE run SET reason = 'not kept: big' WHERE task = 'work/B' AND kind = 'snapshot'")
    (found,) = (finding for finding in patient.find_wrong() if finding.check is Check.SANDBOXES)
    assert f"{sandbox_of_b} is needed by no attempt, and is not removed" in found.what
    assert "its snapshot said: not kept: big" in found.what
    assert found.fix is None


@pytest.mark.parametrize("place", ["deep", "work", "work/index", "home", "tmp"])
def test_a_sandbox_somebody_has_worked_in_since_is_never_removed(
    patient: Patient, sandbox_of_b: Path, place: str
) -> None:
    new = sandbox_of_b / place / "index"
    new.parent.mkdir(exist_ok=True)
    new.write_text("the only copy\n")
    os.utime(new, (0, 0))
    _refuses(patient, sandbox_of_b, "was written after its snapshot")
    assert new.read_text() == "the only copy\n"


def test_a_sandbox_somebody_has_put_a_link_to_a_directory_into_is_never_removed(
    patient: Patient, sandbox_of_b: Path
) -> None:
    (sandbox_of_b / "work" / "link").symlink_to(".git", target_is_directory=True)
    _refuses(patient, sandbox_of_b, "link was written after its snapshot began")


def test_a_sandbox_somebody_has_worked_in_while_its_snapshot_was_made_is_not_proven_kept(
    patient: Patient, sandbox_of_b: Path
) -> None:
    # The tables are changed to plant it, so nothing at all is repaired; the finding itself has to be right as well.
    patient.sql("UPDATE run SET ended_at = '9999-01-01T00:00:00.000000Z' WHERE kind = 'snapshot'")
    (sandbox_of_b / "work" / "new").write_text("the only copy\n")
    (found,) = (finding for finding in patient.find_wrong() if finding.check is Check.SANDBOXES)
    assert "new was written after its snapshot began" in found.what
    assert found.fix is None


def test_a_sandbox_in_which_something_still_lives_is_not_removed_before_that_is_dead(
    patient: Patient, sandbox_of_b: Path
) -> None:
    lingering = Lingering(f"{patient.hive}/work/B.1.agent")
    try:
        found = {finding.check: finding for finding in patient.find_wrong()}
        assert "processes of its runs are alive" in found[Check.SANDBOXES].what
        assert found[Check.SANDBOXES].fix is None
        assert [line.partition(" ")[0] for line in patient.repair().done] == ["Killed", "Removed"]
        assert not sandbox_of_b.exists()
    finally:
        lingering.end()


def test_a_sandbox_whose_ref_is_gone_is_never_removed(patient: Patient, sandbox_of_b: Path) -> None:
    patient.git("update-ref", "-d", "refs/hive/attempts/work/B/1")
    _refuses(patient, sandbox_of_b, "is not in the mirror")


def test_a_sandbox_nobody_knows_is_never_removed(patient: Patient) -> None:
    for name in ("work/Z.1", "work/C.1", "work/B.2", "other/A.1", "work/strange"):
        path = patient.places.hive / "sandboxes" / name
        path.mkdir(parents=True)
        _refuses(patient, path, "is not removed")
    unknown = [finding for finding in patient.find_wrong() if "its attempt is not in the ledger" in finding.what]
    assert len(unknown) == 4
    assert all(finding.advice.startswith("Let the keeper settle it first: hive up.") for finding in unknown)
    assert not [finding for finding in unknown if "rm -rf" in finding.advice]


def test_a_sandbox_whose_snapshot_failed_is_never_removed(patient: Patient, sandbox_of_b: Path) -> None:
    # The tables are changed to plant it, so nothing at all is repaired; the finding itself has to be right as well.
    patient.sql("UPDATE run SET exit_status = 1 WHERE task = 'work/B' AND kind = 'snapshot'")
    (found,) = (finding for finding in patient.find_wrong() if finding.check is Check.SANDBOXES)
    assert "no snapshot of its work succeeded" in found.what
    assert found.fix is None
    report = patient.repair()
    assert report.done == ()
    assert "cannot be trusted" in report.left[0]
    assert sandbox_of_b.is_dir()


def test_what_an_ended_run_left_alive_is_killed(patient: Patient) -> None:
    lingering = Lingering(f"{patient.hive}/work/C.1.agent")
    try:
        (found,) = patient.find_wrong()
        assert found.check is Check.PROCESSES
        assert lingering.is_alive()
        report = patient.repair()
        assert f"Killed processes {lingering.process.pid}" in report.done[0]
        assert list_wrong(report) == []
        assert lingering.process.wait(5) == -9
        _has_nothing_to_do(patient)
    finally:
        lingering.end()


def test_an_orphan_is_killed_first_and_the_lock_it_may_have_held_removed_after(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    lingering = Lingering(f"{patient.hive}/work/C.1.agent")
    try:
        report = patient.repair()
        assert len(report.done) == 2
        assert not lock.exists()
        assert list_wrong(report) == []
    finally:
        lingering.end()


def test_a_state_put_by_that_is_wrong_is_thrown_away_and_no_other(patient: Patient) -> None:
    with reading_only(patient.places.ledger) as connection, rebuilt(connection, until=5) as state:
        right = encode_state(state)
    for seq in (5, 6, 7):
        patient.sql("INSERT INTO checkpoint (seq, recorded_at, data) VALUES (?, '', ?)", seq, right)
    report = patient.repair()
    assert report.done == tuple(f"Dropped the checkpoint at event {seq}." for seq in (6, 7))
    assert list_wrong(report) == []
    with reading_only(patient.places.ledger) as connection:
        assert queries.list_checkpoints(connection) == [5]
    _has_nothing_to_do(patient)


def test_repairing_adds_the_lease_to_the_log_and_nothing_else(patient: Patient) -> None:
    (patient.places.mirror("app") / "HEAD.lock").touch()
    before = patient.count_events()
    patient.repair()
    hive = open_hive(patient.root)
    with hive.ledger.read() as connection:
        kinds = [event.body.kind for event in read_events(connection, before, 10)]
    hive.close()
    assert kinds == ["lease.taken", "lease.released"]


def test_under_a_living_keeper_nothing_is_touched(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    hive = open_hive(patient.root)
    keeper = Keeper(hive)
    try:
        assert patient.find_wrong() == []  # a lock may be in use while somebody keeps
        events = patient.count_events()
        with pytest.raises(AnotherKeeperError, match="Another keeper is active"):
            patient.repair()
        assert lock.exists()
        assert patient.count_events() == events
    finally:
        keeper.close()
        hive.close()


def test_a_lock_older_than_any_run_is_found_under_a_living_keeper_and_left(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    os.utime(lock, (1, 1))
    hive = open_hive(patient.root)
    keeper = Keeper(hive)
    try:
        (found,) = patient.find_wrong()
        assert (found.check, found.fix) == (Check.LOCKS, None)
        assert "hive down" in found.advice
    finally:
        keeper.close()
        hive.close()


def test_a_keeper_that_is_just_starting_is_left_alone(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    holder = os.open(patient.places.keeper_lock, os.O_RDWR | os.O_CREAT, 0o600)
    fcntl.flock(holder, fcntl.LOCK_EX)  # it has the kernel's lock and has not written its lease yet
    try:
        with pytest.raises(AnotherKeeperError):
            patient.repair()
        assert lock.exists()
    finally:
        os.close(holder)


def test_a_silent_keeper_is_not_killed_by_repairing(patient: Patient) -> None:
    (patient.places.mirror("app") / "HEAD.lock").touch()
    code = "import sys; from pathlib import Path\n"
    code += "from hivekeeper.hive import open_hive; from hivekeeper.keeper.keeper import Keeper\n"
    code += "Keeper(open_hive(Path(sys.argv[1]))); print('kept', flush=True); sys.stdin.read()"
    argv = (sys.executable, "-c", code, str(patient.root))
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "kept\n"
        silent_ms = int((SystemClock().monotonic() - 1000) * 1000)
        patient.sql("UPDATE heartbeat SET monotonic_ms = ?, boot_id = ?", silent_ms, read_boot_id())
        with pytest.raises(AnotherKeeperError):
            patient.repair()
        assert process.poll() is None
    finally:
        process.kill()
        process.communicate()


def test_a_damaged_ledger_is_not_repaired_around(patient: Patient) -> None:
    lock = patient.places.mirror("app") / "HEAD.lock"
    lock.touch()
    patient.sql("UPDATE event SET why = 'x' WHERE seq = 2")
    report = patient.repair()
    assert report.done == ()
    assert lock.exists()
