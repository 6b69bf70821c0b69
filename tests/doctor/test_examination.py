"""What each defect, planted for real, is called; and that a hive without one has no finding."""

import os
from pathlib import Path

import apsw
import pytest

from hivekeeper.commands.plans import add_task
from hivekeeper.doctor.findings import Check, Finding, Level, decide_exit_code
from hivekeeper.doctor.machine import decide_space, judge_isolation
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import RunState
from hivekeeper.hive import open_hive
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.sandbox import isolation
from hivekeeper.store import queries
from hivekeeper.store.replay import encode_state, rebuilt
from hivekeeper.store.sqlite import reading_only
from tests.doctor.conftest import Lingering, Patient
from tests.runs.conftest import kill_and_wait
from tests.stage import ME


def test_a_hive_that_has_done_its_work_has_no_finding(patient: Patient) -> None:
    assert patient.find_wrong() == []
    assert patient.exit_code() == 0
    assert {finding.check for finding in patient.examine().findings} == set(Check)


def test_looking_changes_nothing(patient: Patient) -> None:
    before = _list_files(patient.root)
    patient.examine()
    assert _list_files(patient.root) == before


def _list_files(root: Path) -> dict[str, int]:
    """Every file with its time of change; SQLite makes two of its own to read a ledger that nobody has open."""
    files = (
        path for path in root.rglob("*") if not path.is_dir() and path.name not in ("ledger.db-wal", "ledger.db-shm")
    )
    return {str(path): path.lstat().st_ctime_ns for path in files}


def _only(patient: Patient, check: Check, level: Level) -> Finding:
    (found,) = patient.find_wrong()
    assert (found.check, found.level) == (check, level)
    assert found.advice
    return found


def test_a_byte_flipped_in_an_event_is_found_though_the_tables_are_as_they_were(patient: Patient) -> None:
    patient.sql(
        "UPDATE event SET data = replace(data, 'echo a', 'echo x') WHERE kind = 'task.added' AND subject LIKE '%A'"
    )
    assert "is not what was written" in _only(patient, Check.LOG, Level.FAIL).what
    assert patient.exit_code() == 4


def test_a_blank_added_to_an_event_is_found_though_it_means_the_same(patient: Patient) -> None:
    patient.sql("UPDATE event SET data = replace(data, '{', '{ ') WHERE seq = 3")
    assert "event 3 is not what was written" in _only(patient, Check.LOG, Level.FAIL).what


def test_every_damaged_event_is_named_not_only_the_first(patient: Patient) -> None:
    patient.sql("UPDATE event SET why = 'x' WHERE seq IN (2, 9)")
    patient.sql("UPDATE event SET data = x'00' WHERE seq = 5")
    said = [finding.what for finding in patient.find_wrong()]
    assert len(said) == 3
    assert all(f"event {seq} is not" in sentence for seq, sentence in zip((2, 5, 9), said, strict=True))


@pytest.mark.parametrize(("last", "sentence"), [(7, "event 7 is missing."), (9, "event 7 is missing, up to 9.")])
def test_a_missing_event_is_named(patient: Patient, last: int, sentence: str) -> None:
    patient.sql("DELETE FROM event WHERE seq BETWEEN 7 AND ?", last)
    assert sentence in _only(patient, Check.LOG, Level.FAIL).what


def test_an_end_cut_off_is_found_by_the_head(patient: Patient) -> None:
    last = patient.count_events()
    patient.sql("DELETE FROM event WHERE seq = ?", last)
    assert f"the head says event {last}" in _only(patient, Check.LOG, Level.FAIL).what


def test_a_row_changed_behind_the_ledgers_back_is_named_with_what_the_log_says(patient: Patient) -> None:
    patient.sql("UPDATE task SET priority = 77 WHERE key = 'work/C'")
    found = _only(patient, Check.TABLES, Level.FAIL)
    assert "work/C" in found.what
    assert "77" in found.what
    assert patient.exit_code() == 4


def test_events_of_a_kind_nobody_knows_are_named(patient: Patient) -> None:
    patient.sql("UPDATE event SET kind = 'bee.flown' WHERE seq = 4")
    said = [finding.what for finding in patient.find_wrong()]
    assert any("'bee.flown'" in sentence for sentence in said)
    assert patient.exit_code() == 4


def test_a_row_that_refers_to_nothing_is_found(patient: Patient) -> None:
    patient.sql("INSERT INTO task_after (task, after) VALUES ('work/nobody', 'work/A')")
    found = {finding.check: finding.what for finding in patient.find_wrong()}
    assert set(found) == {Check.TABLES, Check.FILE}
    assert "refers to a task that is not there" in found[Check.FILE]


def test_a_ledger_taken_out_of_wal_mode_is_found(patient: Patient) -> None:
    patient.sql("PRAGMA journal_mode = delete")
    assert "journal_mode is delete" in _only(patient, Check.PRAGMAS, Level.FAIL).what


def test_of_the_settings_no_more_is_said_than_that_sqlite_takes_them(patient: Patient) -> None:
    (said,) = (finding.what for finding in patient.examine().findings if finding.check is Check.PRAGMAS)
    assert said == "SQLite accepts every setting the ledger needs"


def test_states_put_by_that_are_what_the_log_says_are_no_finding(patient: Patient) -> None:
    last = patient.count_events()
    for seq in (1, last // 2, last):
        _put_by(patient, seq)
    assert patient.find_wrong() == []


@pytest.mark.parametrize("data", ["", "no base 64", "W10=", "eJyLjgUAARUAuQ=="])
def test_a_state_put_by_that_cannot_be_read_is_found_and_the_others_are_not(patient: Patient, data: str) -> None:
    last = patient.count_events()
    for seq in (last // 2, last):
        _put_by(patient, seq)
    patient.sql("UPDATE checkpoint SET data = ? WHERE seq = ?", data, last // 2)
    assert f"The checkpoint at event {last // 2} " in _only(patient, Check.TABLES, Level.WARN).what


def test_a_state_put_by_that_is_of_another_moment_is_found(patient: Patient) -> None:
    last = patient.count_events()
    _put_by(patient, last - 1)
    patient.sql("UPDATE checkpoint SET seq = ?", last)
    assert f"event {last} " in _only(patient, Check.TABLES, Level.WARN).what
    patient.sql("UPDATE checkpoint SET seq = ?", last + 9)
    assert f"event {last + 9} " in _only(patient, Check.TABLES, Level.WARN).what


def _put_by(patient: Patient, seq: int) -> None:
    with reading_only(patient.places.ledger) as connection, rebuilt(connection, until=seq) as state:
        data = encode_state(state)
    patient.sql("INSERT INTO checkpoint (seq, recorded_at, data) VALUES (?, '', ?)", seq, data)


def test_another_programs_database_is_refused_with_4(patient: Patient) -> None:
    patient.sql("PRAGMA application_id = 1")
    assert "not a hive's ledger" in _only(patient, Check.LEDGER, Level.FAIL).what
    assert patient.exit_code() == 4


def test_a_newer_ledger_is_refused_with_4(patient: Patient) -> None:
    patient.sql("PRAGMA user_version = 999")
    assert "has schema 999" in _only(patient, Check.LEDGER, Level.FAIL).what
    assert patient.exit_code() == 4


@pytest.mark.parametrize("share", [0.0, 0.3, 0.6, 0.9])
def test_a_truncated_ledger_is_4_and_the_rest_is_still_looked_at(patient: Patient, share: float) -> None:
    ledger = patient.places.ledger
    os.truncate(ledger, int(ledger.stat().st_size * share))
    assert patient.exit_code() == 4
    assert Check.GIT in {finding.check for finding in patient.examine().findings}


def test_a_ledger_that_is_gone_is_4(patient: Patient) -> None:
    patient.places.ledger.unlink()
    assert "There is no ledger" in _only(patient, Check.LEDGER, Level.FAIL).what


def test_wrong_settings_are_named_with_their_line(patient: Patient) -> None:
    (patient.root / "hive.toml").write_text("[hive]\nworkes = 3\n")
    assert "hive.toml:2" in _only(patient, Check.SETTINGS, Level.FAIL).what
    assert patient.exit_code() == 1


def test_a_keeper_that_died_is_said(patient: Patient, dead_pid: int) -> None:
    patient.sql("UPDATE lease SET released_at = NULL, pid = ?, boot_id = ?", dead_pid, read_boot_id())
    assert "died without releasing the lease" in _find(patient, Check.LEASE).what


def test_a_living_keeper_that_is_silent_is_abandoned(patient: Patient) -> None:
    _have_kept(patient, silent_s=301)
    assert "ABANDONED" in _find(patient, Check.LEASE).what


def test_a_living_keeper_is_no_finding(patient: Patient) -> None:
    _have_kept(patient, silent_s=10)
    assert Check.LEASE not in {finding.check for finding in patient.find_wrong()}


def test_an_epoch_of_the_head_that_is_not_the_leases_is_found(patient: Patient) -> None:
    patient.sql("UPDATE lease SET epoch = epoch + 1")
    assert "epoch" in _find(patient, Check.LEASE).what


def _find(patient: Patient, check: Check) -> Finding:
    """The one finding of a check; the tables were changed to plant it, which is found as well."""
    (found,) = (finding for finding in patient.find_wrong() if finding.check is check)
    assert found.advice
    return found


def _have_kept(patient: Patient, *, silent_s: float) -> None:
    """Make this very process the one that keeps the hive."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    beat_ms = int((float(Path("/proc/uptime").read_text().split()[0]) - silent_s) * 1000)
    holder = "UPDATE lease SET released_at = NULL, pid = ?, start_ticks = ?, boot_id = ?"
    patient.sql(holder, os.getpid(), int(fields[19]), read_boot_id())
    patient.sql("UPDATE heartbeat SET boot_id = ?, monotonic_ms = ?", read_boot_id(), beat_ms)


@pytest.mark.parametrize("repo", [None, "app"])
def test_a_run_goes_on_without_a_keeper_and_is_a_finding_only_when_its_wrapper_is_killed(
    patient: Patient, repo: str | None
) -> None:
    wrapper = _start_sleeper(patient, repo)
    assert patient.places.sandbox("work/S", 1).exists() == (repo is not None)
    assert patient.find_wrong() == []
    kill_and_wait(wrapper)
    found = _only(patient, Check.RUNS, Level.WARN)
    assert "work/S.1.agent is RUNNING in the ledger, and its wrapper is dead" in found.what
    assert "hive up" in found.advice
    assert found.fix is None
    patient.keep_until(lambda: not patient.run("work/S.1.agent").is_open)
    assert patient.find_wrong() == []


def _start_sleeper(patient: Patient, repo: str | None) -> int:
    """Have a task begun that sleeps, and stop keeping; tell its wrapper."""
    hive = open_hive(patient.root)
    with hive.ledger.write(ME) as tx:
        add_task(tx, "work", TaskSpec("S", "sleep 60", repo=repo, attempts=1))
    hive.close()

    def is_running() -> bool:
        with reading_only(patient.places.ledger) as connection:
            run = queries.find_run(connection, "work/S.1.agent")
        return run is not None and run.state is RunState.RUNNING

    patient.keep_until(is_running)
    return patient.run("work/S.1.agent").pid or 0


def test_a_runs_directory_that_no_row_knows_is_found(patient: Patient) -> None:
    (patient.places.runs / "work" / "Z.1.agent").mkdir()
    found = _only(patient, Check.RUNS, Level.WARN)
    assert "Z.1.agent" in found.what
    assert found.advice.startswith("Leave it: the keeper adopts")
    assert found.advice.endswith("hive up")


def test_check_outs_of_the_queue_and_the_runs_in_them_are_nobodys_left_overs(patient: Patient) -> None:
    assert (patient.places.checkout("app", 1) / "work").is_dir()
    assert list((patient.places.runs / "_gates" / "app").glob("*.gate"))
    assert patient.find_wrong() == []


def test_a_directory_of_a_verification_that_no_row_knows_is_found(patient: Patient) -> None:
    (patient.places.runs / "_gates" / "app" / "0123-4567.1.1.gate").mkdir()
    found = _only(patient, Check.RUNS, Level.WARN)
    assert "_gates/app/0123-4567.1.1.gate" in found.what


def test_a_name_that_is_no_text_is_found_and_does_not_pass_for_a_damaged_ledger(patient: Patient) -> None:
    Path(os.fsdecode(os.fsencode(patient.places.runs) + b"/work/\xff.1.agent")).mkdir()
    _only(patient, Check.RUNS, Level.WARN)


def test_a_process_of_a_run_nobody_knows_is_found_and_left_alone(patient: Patient) -> None:
    lingering = Lingering(f"{patient.hive}/work/Z.1.agent")
    try:
        found = _only(patient, Check.PROCESSES, Level.FAIL)
        assert str(lingering.process.pid) in found.what
        assert found.advice.startswith("Leave them")
        assert "if an older ledger was restored, the keeper adopts" in found.advice
        assert found.advice.endswith("hive up")
        assert patient.repair().done == ()
        assert lingering.is_alive()
    finally:
        lingering.end()


def test_a_process_of_another_hive_is_none_of_ours(patient: Patient) -> None:
    lingering = Lingering("another/work/A.1.agent")
    try:
        assert patient.find_wrong() == []
    finally:
        lingering.end()


def test_an_open_attempts_sandbox_that_is_gone_is_lost_work(patient: Patient) -> None:
    patient.sql("UPDATE attempt SET sandbox = 'PRESENT', state = 'WORKING', ended_at = NULL WHERE task = 'work/B'")
    patient.sql("DELETE FROM run WHERE task = 'work/B' AND kind IN ('snapshot', 'remove')")
    patient.places.sandbox("work/B", 1).mkdir()  # a sandbox without the clone
    found = _find(patient, Check.SANDBOXES)
    assert (found.level, found.fix) == (Level.FAIL, None)
    assert "was not saved" in found.what


def test_what_a_task_made_without_a_merge_queue_stays_where_it_was_kept(patient: Patient) -> None:
    kept = patient.git("rev-parse", "refs/hive/attempts/work/A/1")
    patient.sql("UPDATE task SET commit_id = ? WHERE key = 'work/A'", kept)
    assert Check.MIRRORS not in {finding.check for finding in patient.find_wrong()}
    patient.sql("UPDATE task SET commit_id = ? WHERE key = 'work/A'", patient.commit())
    assert "1 COMPLETE task is not on a branch" in _find(patient, Check.MIRRORS).what


def test_a_removed_mirror_is_found(patient: Patient) -> None:
    patient.places.mirror("app").rename(patient.root / "elsewhere")
    assert "is gone" in _only(patient, Check.MIRRORS, Level.FAIL).what
    assert patient.exit_code() == 1


def test_an_integration_branch_that_was_moved_back_is_found_with_what_it_has_lost(patient: Patient) -> None:
    patient.git("update-ref", "refs/heads/main", "refs/heads/main~1")
    said = [finding.what for finding in patient.find_wrong()]
    assert any("refs/heads/main" in sentence and "was moved" in sentence for sentence in said)
    assert any("1 COMPLETE task is not on a branch" in sentence and "work/A" in sentence for sentence in said)


def test_an_integration_branch_that_is_ahead_of_the_ledger_is_well(patient: Patient) -> None:
    patient.git("update-ref", "refs/heads/main", patient.commit())
    patient.share()
    assert patient.find_wrong() == []


def test_an_integration_branch_that_is_gone_is_found(patient: Patient) -> None:
    patient.git("update-ref", "-d", "refs/heads/main")
    assert any("refs/heads/main is gone" in finding.what for finding in patient.find_wrong())


def test_a_missing_object_is_found(patient: Patient) -> None:
    tree = patient.git("rev-parse", "refs/hive/attempts/work/B/1^{tree}")
    (patient.places.mirror("app") / "objects" / tree[:2] / tree[2:]).unlink()
    assert "is damaged" in _only(patient, Check.MIRRORS, Level.FAIL).what
    assert patient.exit_code() == 1


def test_a_missing_object_that_the_mirror_borrows_is_found_for_both(patient: Patient) -> None:
    first = patient.git("rev-parse", "refs/hive/source/main")
    (patient.places.public("app") / "objects" / first[:2] / first[2:]).unlink()
    found = [finding for finding in patient.find_wrong() if "is damaged" in finding.what]
    assert [finding.check for finding in found] == [Check.MIRRORS, Check.PUBLIC]


def test_an_attempts_ref_that_is_gone_while_it_waits_to_land_is_found(patient: Patient) -> None:
    patient.sql("UPDATE attempt SET state = 'SUBMITTED', ended_at = NULL WHERE task = 'work/A'")
    assert Check.MIRRORS not in {finding.check for finding in patient.find_wrong()}
    patient.git("update-ref", "-d", "refs/hive/attempts/work/A/1")
    assert "is not saved" in _find(patient, Check.MIRRORS).what


def test_refs_of_attempts_nobody_knows_are_named_together_and_kept(patient: Patient) -> None:
    names = ("attempts/work/A/7", "attempts/work/Z/1", "attempts/strange", "rest/work/Z/1", "saves/work/Z/1/000001")
    unknown = [f"refs/hive/{name}" for name in names]
    for ref in (*unknown, "refs/hive/rest/work/A/1", "refs/hive/saves/work/A/1/000001"):
        patient.git("update-ref", ref, "refs/heads/main")
    found = _only(patient, Check.MIRRORS, Level.WARN)
    assert found.what.startswith("5 refs of ")
    assert all(ref in found.what for ref in unknown)
    assert "work/A/1" not in found.what
    assert found.advice.startswith("Leave it")
    assert "git --git-dir" in found.advice
    assert patient.repair().done == ()
    assert all(patient.git("rev-parse", ref) for ref in unknown)


@pytest.mark.parametrize("name", ["repos/other.git", "repos/other.git.new", "public/other.git"])
def test_a_mirror_no_repository_has_is_found_and_kept(patient: Patient, name: str) -> None:
    path = patient.places.hive / name
    path.mkdir()
    found = _only(patient, Check.MIRRORS, Level.WARN)
    assert str(path) in found.what
    assert found.advice.startswith("Leave it")
    assert patient.repair().done == ()
    assert path.is_dir()


def test_a_log_of_sqlite_that_has_grown_is_found(patient: Patient) -> None:
    connection = apsw.Connection(str(patient.places.ledger))
    connection.execute("UPDATE head SET hive = hive")  # so that there is a log, and somebody who has it open
    os.truncate(patient.places.ledger.with_name("ledger.db-wal"), 65 << 20)
    try:
        assert "has grown to 65 MiB" in _only(patient, Check.WAL, Level.WARN).what
    finally:
        connection.close()


@pytest.mark.parametrize(
    ("level", "why", "sentence"),
    [
        (isolation.Level.NAMESPACES, "", "workers are isolated by namespaces (bubblewrap)"),
        (isolation.Level.LIMITS, "bwrap is not there", "workers are isolated by limits only: bwrap is not there"),
    ],
)
def test_what_keeps_workers_apart_is_said_with_the_reason_when_it_is_not_the_best(
    level: isolation.Level, why: str, sentence: str
) -> None:
    found = judge_isolation(isolation.Isolation(level, why, "/home"), None)
    assert (found.level, found.what) == (Level.OK, sentence)


@pytest.mark.parametrize("require", ["landlock", "namespaces"])
def test_weaker_isolation_than_the_settings_require_is_something_needed_that_is_not_there(require: str) -> None:
    found = judge_isolation(isolation.Isolation(isolation.Level.LIMITS, "bwrap is not there", "/home"), require)
    assert (found.check, found.level) == (Check.WORKERS, Level.FAIL)
    assert f"requires {require}, and workers are isolated by limits only: bwrap is not there." in found.what
    assert decide_exit_code([found]) == 5
    assert judge_isolation(isolation.Isolation(isolation.Level(require), "", "/home"), require).level is Level.OK


@pytest.mark.parametrize(
    ("free", "total", "level"),
    [
        (0, 100 << 30, Level.FAIL),
        (1, 100 << 30, Level.WARN),
        ((5 << 30) - 1, 100 << 30, Level.WARN),
        (5 << 30, 100 << 30, Level.OK),
        ((1 << 30) - 1, 4 << 30, Level.WARN),
        (1 << 30, 4 << 30, Level.OK),
    ],
)
def test_space_is_a_share_of_the_disk_and_a_least_amount(free: int, total: int, level: Level) -> None:
    assert decide_space(free, total, 1 << 30) is level
