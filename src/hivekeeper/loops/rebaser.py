"""The rebaser: checks that workers rebase onto a hotfix that changed the same files.

A worker's word is no evidence: its clone must contain the hotfix. The clone's head is read from its files; a commit
that the mirror does not know yet is saved first, like any work in progress. `hive status` says who is late.
"""

from pathlib import Path

from hivekeeper.commands.mail import note_rebased
from hivekeeper.domain import events as e
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.rows import AttemptRow, TaskRow
from hivekeeper.domain.states import AttemptState
from hivekeeper.domain.steps import Start
from hivekeeper.git.clone import read_head
from hivekeeper.git.mirror import Mirror
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.specs.attempt import Work, specify_step
from hivekeeper.store import queries
from hivekeeper.store.database import Connection
from hivekeeper.working.gathering import gather_work

WAITING_INTERVAL_S, IDLE_INTERVAL_S = 2.0, 60.0


class Rebaser(Loop):
    """Checks rebases."""

    name = "rebaser"
    order = 65
    wakes = Wakes((e.MergeLanded, e.AttemptFailed), ends_of=("save",))

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._checked: dict[str, str] = {}  # by message: the head that did not contain its hotfix
        self._saved: dict[str, str] = {}  # by message: the head for which a save was asked

    def run_once(self) -> Counts:
        """Note who has rebased, and save work of which that is not known."""
        with self._ledger.read() as connection:
            due = [mail for mail in queries.list_open_mail(connection) if mail.must_rebase]
            ids = {mail.id for mail in due}
            self._checked, self._saved = (
                {i: head for i, head in of.items() if i in ids} for of in (self._checked, self._saved)
            )
            self.interval_s = WAITING_INTERVAL_S if due else IDLE_INTERVAL_S
            found = [(mail, *self._check(connection, mail)) for mail in due]
        rebased = [mail for mail, is_rebased, _ in found if is_rebased]
        to_save = [work for _, _, work in found if work is not None]
        if not rebased and not to_save:
            return {}
        with self._ledger.write(self._authority) as tx:
            for mail in rebased:
                note_rebased(tx, mail)
            for work in to_save:
                start = Start("save", work.count("save") + 1)
                self._intend(tx, work.owner, start, specify_step(self._places, work, start))
        return {"rebased": len(rebased), "saving": len(to_save)}

    def _check(self, connection: Connection, mail: MailRow) -> tuple[bool, Work | None]:
        """Check whether a worker has rebased; also return its work if that has to be saved first."""
        task = queries.find_task(connection, str(mail.task))
        attempt = queries.find(connection, AttemptRow, task=str(mail.task), number=mail.attempt or 0)
        if task is None or task.repo is None or attempt is None or attempt.state is not AttemptState.WORKING:
            return False, None
        head = read_head(self._find_clone(task, attempt))
        if head is None or self._checked.get(mail.id) == head:
            return False, None
        mirror = Mirror(self._places.mirror(task.repo))
        if mirror.find_commit(head) is None:
            if self._saved.get(mail.id) == head:
                return False, None  # a save does not bring it
            work = self._find_unsaved(connection, task, attempt)
            if work is not None:
                self._saved[mail.id] = head
            return False, work
        if mirror.is_ancestor(str(mail.get_payload().get("commit")), head):
            return True, None
        self._checked[mail.id] = head
        return False, None

    def _find_clone(self, task: TaskRow, attempt: AttemptRow) -> Path:
        return self._places.sandbox(task.key, attempt.number) / "work"

    def _find_unsaved(self, connection: Connection, task: TaskRow, attempt: AttemptRow) -> Work | None:
        """Find the work of an attempt, unless it is being saved, or it is too early or too late for that."""
        runs = queries.list_runs_of_attempt(connection, task.key, attempt.number)
        repos = {repo.name: repo for repo in queries.list_repos(connection)}
        work = gather_work(self._settings, task, attempt.number, attempt.start, repos, runs, attempt)
        is_running = work.agent is not None and work.agent.is_open and work.agent.started_at is not None
        return work if is_running and not any(run.kind == "save" and run.is_open for run in runs) else None
