"""Writing the intent of a run that only a test knows."""

from hivekeeper.domain import events as e
from hivekeeper.domain.run import Order
from hivekeeper.store.ledger import Transaction


def intend(
    tx: Transaction,
    order: Order,
    *,
    boot_id: str,
    task: str | None = None,
    attempt: int | None = None,
    repo: str | None = None,
) -> None:
    """Intend a run under any name; it belongs to a sequence of its own."""
    body = e.RunIntended(
        run=order.run,
        run_kind=order.kind,
        task=task,
        attempt=attempt,
        repo=repo,
        argv=list(order.argv),
        directory=order.directory,
        environment=order.environment,
        limits=order.limits,
        boot_id=boot_id,
        mounts=order.mounts,
        owner_kind="attempt",
        owner=order.run,
    )
    tx.record(body)
