"""The ledger for people who write their own coordinator: a page of Python that survives its own death.

    with Coordinator("orders", directory) as coordinator:
        coordinator.add(Task("one", ["python", "/srv/orders/one.py"], output="outputs/one.md"))
        coordinator.add(Task("two", 'python "$HIVE_ROOT/two.py"', after=["one"]))
        coordinator.keep()

Entering takes the coordinator's lease; a second coordinator gets `AnotherKeeperError` and changes nothing. Adding a
known task changes nothing, so the same program, run again after a crash, continues where the last one stopped: what is
complete never runs again, what still runs is adopted, the order holds.
"""

import shlex
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from hivekeeper.commands.convoys import archive_convoy
from hivekeeper.commands.plans import add_tasks
from hivekeeper.domain.names import NAME_RULE, TASK_ID_RULE, is_name, is_task_id
from hivekeeper.domain.plan import Limits, TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import AnotherKeeperError, InputError
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.store.ledger import Ledger, create_ledger
from hivekeeper.views.convoys import get_convoy, show_ledger

__all__ = ["AnotherKeeperError", "Coordinator", "Limits", "Task"]


@dataclass(frozen=True, slots=True)
class Task:
    """A command to run once, in the coordinator's directory, which $HIVE_ROOT names.

    One that promises an `output` runs in an empty directory of its own instead, and the file is collected from there
    into the coordinator's: so it names everything else by absolute paths or through $HIVE_ROOT.
    """

    id: str
    command: Sequence[str] | str
    after: Sequence[str] = ()
    output: str | None = None
    attempts: int = 1
    idempotent: bool = False
    limits: Limits = field(default_factory=Limits)


class Coordinator:
    """A convoy of commands, with this process as its keeper."""

    def __init__(self, pipeline: str, directory: str | Path = ".", *, workers: int = 4) -> None:
        if not is_name(pipeline):
            raise InputError(f"'{pipeline}' is not a valid name.", advice=f"Names are {NAME_RULE}.")
        self.pipeline = pipeline
        self._root = Path(directory)
        self._workers = workers
        self._keeper: Keeper | None = None

    def __enter__(self) -> Self:
        (self._root / ".hive").mkdir(parents=True, exist_ok=True)
        create_ledger(
            self._root / ".hive" / "ledger.db"
        )  # finishes one that was interrupted, leaves a whole one as it is
        hive = open_hive(self._root)
        try:
            self._keeper = Keeper(hive, workers=self._workers)
        except BaseException:
            hive.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._kept.close()
        self._kept.hive.close()

    def add(self, *tasks: Task) -> int:
        """Add tasks and return how many are new; known ones stay as they are, with a warning where they differ."""
        specs = []
        for task in tasks:
            if not is_task_id(task.id):
                raise InputError(f"'{task.id}' is not a valid task id.", advice=f"Names are {TASK_ID_RULE}.")
            command = task.command if isinstance(task.command, str) else shlex.join(task.command)
            outputs = (task.output,) if task.output else ()
            same = {name: getattr(task, name) for name in ("id", "attempts", "idempotent", "limits")}
            specs.append(TaskSpec(command=command, after=tuple(task.after), outputs=outputs, **same))
        with self._ledger.write(self._kept.authority) as tx:
            submitted = add_tasks(tx, self.pipeline, specs)
        for sentence in submitted.unchanged_because:
            warnings.warn(sentence, stacklevel=2)
        return submitted.added

    def keep(self) -> bool:
        """Run the keeper until everything has ended; return whether all of it is complete."""
        self._kept.start()
        while not self._kept.stopped.is_set():
            with self._ledger.read() as connection:
                convoy = get_convoy(connection, self.pipeline)
                if convoy.state is not ConvoyState.ACTIVE:
                    return convoy.state is not ConvoyState.FAILED
            self._kept.wait_for_commit(1.0)
        if self._kept.fenced is not None:
            raise self._kept.fenced
        return False

    def ledger(self) -> dict[str, Any]:
        """Show the dispatch ledger, as `hive ledger --json` prints it."""
        with self._ledger.read() as connection:
            return show_ledger(connection, get_convoy(connection, self.pipeline))

    def archive(self) -> None:
        """Archive the ended convoy; its ids never run again."""
        with self._ledger.write(self._kept.authority) as tx:
            archive_convoy(tx, get_convoy(tx.connection, self.pipeline))

    @property
    def _kept(self) -> Keeper:
        if self._keeper is None:
            raise InputError("The coordinator is not entered.", advice="Write: with Coordinator(...) as coordinator:")
        return self._keeper

    @property
    def _ledger(self) -> Ledger:
        return self._kept.hive.ledger
