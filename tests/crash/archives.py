"""Scenarios of the archive: a keeper commits what has happened, twice, and dies, or git does."""

import os
from contextlib import suppress
from dataclasses import replace

from hivekeeper.commands.convoys import archive_convoy
from hivekeeper.commands.sessions import raise_budget
from hivekeeper.domain.budget import Cap
from hivekeeper.errors import HiveError
from hivekeeper.git.archive import LOCKED_FOR_S
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store import queries
from tests.archives import list_archive_problems
from tests.crash.playing import scenario
from tests.crash.stage import Play
from tests.stage import ME


def finished(stage: Play) -> None:
    stage.make_hive()
    stage.submit(stage.task("a"))
    stage.finish()


def commit(stage: Play) -> None:
    """Make the archive, then bring it up to what a person did."""
    stage.settings = replace(stage.settings, repository=True)
    with stage.keeper() as keeper:
        commit_now(keeper)
        with keeper.hive.ledger.write(ME) as tx:
            convoy = queries.find_convoy(tx.connection, "work")
            assert convoy is not None
            archive_convoy(tx, convoy)
        commit_now(keeper)


def commit_now(keeper: Keeper) -> None:
    (committer,) = (loop for loop in keeper.loops if loop.name == "committer")
    for _ in range(3):  # a git that was killed is tried again
        with suppress(HiveError):
            committer.run_once()


def go_on_committing(stage: Play) -> None:
    """Commit what else happens, when a lock that a git could not remove is too old to be a living one's."""
    stage.settings = replace(stage.settings, repository=True)
    stage.finish()
    for lock in (stage.places.archive / ".git").rglob("*.lock"):
        before = lock.stat().st_mtime - LOCKED_FOR_S - 1
        os.utime(lock, (before, before))
    with stage.keeper() as keeper:
        with keeper.hive.ledger.write(ME) as tx:
            raise_budget(tx, "day", "today", Cap(1, None))
        commit_now(keeper)


def check_archive(stage: Play) -> list[str]:
    with stage.ledger() as ledger:
        return list_archive_problems(ledger, stage.places)


scenario(
    "commit",
    "what happened is committed to the archive",
    given=finished,
    act=commit,
    recover=go_on_committing,
    check=check_archive,
)
scenario(
    "git-commit",
    "git itself is struck while the archive is committed to",
    given=finished,
    act=commit,
    recover=go_on_committing,
    check=check_archive,
    by_git=True,
)
