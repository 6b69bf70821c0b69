"""Scenarios of mail: messages in every phase of their way, and a router that dies at any moment of it.

Agents are rows of running runs without processes. What one of them does with its mailbox is done here, between passes.
One of them ends meanwhile: it has read what was put into its inbox, has written its last words, and is judged when they
are recorded.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from hivekeeper.commands.attempts import cancel_attempt, fail_attempt
from hivekeeper.commands.mail import end_mail_of_attempt
from hivekeeper.commands.post import Outgoing, receive
from hivekeeper.commands.runs import note_lost
from hivekeeper.commands.tasks import cancel_task
from hivekeeper.domain.mail import Limits
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.protocol import PROTOCOL, Draft, read_draft
from hivekeeper.domain.rows import AttemptRow, RunRow, TaskRow
from hivekeeper.domain.states import AttemptState, MailState, RunState, TaskState
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.loops import router
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, INBOX, OUTBOX, Mailbox
from hivekeeper.store import queries
from hivekeeper.working import outboxes
from hivekeeper.working.gathering import gather_work
from hivekeeper.working.telling import awaits_router
from tests.crash.mutants import Mutant, Tier, move_before_record, move_by_name, record_before_delivery, sync_no_inbox
from tests.crash.playing import scenario
from tests.crash.stage import Play
from tests.mailbox.post import start_agent
from tests.stage import ME

WORKERS = ("kind", "good", "bad", "late")
ACCEPTED, PLACED, READ, UNREAD, FORGED, RESENT = "accepted", "placed", "acknowledged", "unread", "forged", "sent again"
FIRST, SECOND, LAST = "replaced by another", "in place of another", "last words"
TO_GOOD = (ACCEPTED, PLACED, READ, UNREAD, FORGED, RESENT, FIRST, SECOND, LAST)
NOTED, FINISHED, ASKED = "read before its agent ended", "all is done", "help"
# What others were told: its type, who wrote it to whom, and what became of it.
TO_OTHERS = {
    NOTED: ("inform", "kind", "late", "acknowledged"),
    FINISHED: ("TASK_COMPLETE", "late", "queue", "the work is finished, and will be checked"),
    ASKED: ("HELP_REQUEST", "kind", "supervisor", "its task was cancelled"),
}
REFUSED = {"half.json": MailState.QUARANTINED, "directory": MailState.QUARANTINED, "nobody.json": MailState.RETURNED}
MOST_PASSES = 60


def send(stage: Play, worker: str, name: str, **message: object) -> None:
    """Write a message into an outbox, whole."""
    outbox = stage.places.mailbox(f"work/{worker}", 1) / OUTBOX
    (outbox / f".{name}").write_text(json.dumps({"type": "inform", "receiver": "good", **message}))
    (outbox / f".{name}").rename(outbox / name)


def find_router(keeper: Keeper) -> router.Router:
    outboxes.SETTLE_S = router.SWEEP_UNWATCHED_S = 0.0  # every pass looks at all of them
    return next(loop for loop in keeper.loops if isinstance(loop, router.Router))


def written(stage: Play) -> None:
    """Messages in every phase: of some the router knows more than the ledger, of others less."""
    stage.make_hive()
    stage.submit(*(TaskSpec(name, "true", outputs=(name,), agent=name) for name in WORKERS))
    with stage.keeper() as keeper:
        for name in WORKERS:
            start_agent(keeper, f"work/{name}")
        carrier = find_router(keeper)
        send(stage, "kind", "1.json", text=READ)
        for _ in range(3):
            carrier.run_once()
        acknowledge(stage)
        send(stage, "kind", "2.json", text=PLACED)
        send(stage, "kind", "noted.json", receiver="late", text=NOTED)
        while not (any(list_inbox(stage)) and any(list_inbox(stage, worker="late"))):
            carrier.run_once()
        acknowledge(stage, "late")
        send(stage, "kind", "3.json", text=ACCEPTED)
        accept(keeper, "3.json")
    send(stage, "late", "last.json", text=LAST)
    send(stage, "late", "finished.json", type="TASK_COMPLETE", receiver="queue", text=FINISHED)
    send(stage, "kind", "help.json", type="HELP_REQUEST", receiver="supervisor", text=ASKED)
    send(stage, "kind", "4.json", text=UNREAD)
    send(stage, "kind", "5.json", text=FORGED, sender="person", hops=-9, id="../../x", timestamp="1970-01-01")
    send(stage, "bad", "nobody.json", receiver="nobody", text="to nobody")
    outbox = stage.places.mailbox("work/bad", 1) / OUTBOX
    (outbox / "half.json").write_text('{"type": "inform", "receiver": "good", "te')
    (outbox / "directory").mkdir()
    (outbox / os.fsdecode(b"\xff.json")).symlink_to(stage.places.ledger)


def accept(keeper: Keeper, name: str) -> None:
    """Be the router, up to the moment when it has recorded a file."""
    task, attempt, _ = gather(keeper, "work/kind")
    with Mailbox(keeper.hive.places.mailbox("work/kind", 1)) as box:
        (listed,) = (each for each in box.list_outbox() or () if each.name == name)
        read = box.read(listed)
    assert read is not None
    draft = read_draft(read.said, PROTOCOL)
    assert isinstance(draft, Draft)
    with keeper.hive.ledger.write(keeper.authority) as tx:
        receive(tx, PROTOCOL, Limits(), Outgoing(task, attempt, name, read.digest, draft))


def list_inbox(stage: Play, place: str = "", worker: str = "good") -> Iterator[Path]:
    """List what lies in an inbox, or in a directory of it; most write to one worker."""
    yield from sorted(path for path in (stage.places.mailbox(f"work/{worker}", 1) / INBOX / place).glob("0*.json"))


def acknowledge(stage: Play, worker: str = "good") -> int:
    """Be a worker that reads its messages."""
    found = list(list_inbox(stage, worker=worker))
    for path in found:
        path.rename(path.parent / ACKNOWLEDGED / path.name)
    return len(found)


def carry(stage: Play) -> None:
    """Carry until nothing is left to do; a worker that was killed sends again what it had sent."""
    send(stage, "kind", "again.json", text=RESENT)
    send(stage, "kind", "replaced.json", text=FIRST)
    with stage.keeper() as keeper:
        carrier, quiet = find_router(keeper), 0
        replace_when_recorded(stage, carrier)
        lose_agent(keeper, "work/late")
        for _ in range(MOST_PASSES):
            quiet = 0 if carrier.run_once() or acknowledge(stage) or judge_late(keeper) else quiet + 1
            if quiet == 3:
                return
    raise TimeoutError("its mail does not come to rest")


def replace_when_recorded(stage: Play, carrier: router.Router) -> None:
    """Be a worker that replaces a file, once, after it was recorded and before it is moved."""
    record, left = carrier._record, [SECOND]  # noqa: SLF001 - the moment after it

    def record_and_replace(
        found: Sequence[router.Found], to_people: Sequence[MailRow], stale: Sequence[MailRow]
    ) -> None:
        record(found, to_people, stale)
        names = [listed.name for each in found for listed, _ in each.batch.files if listed is not None]
        if left and "replaced.json" in names:
            send(stage, "kind", "replaced.json", text=left.pop())

    carrier._record = record_and_replace  # type: ignore[method-assign]  # noqa: SLF001 - see above


def judge_late(keeper: Keeper) -> bool:
    """Be the dispatcher for the agent that has ended, once nothing is left that it has read or written."""
    task, attempt, runs = gather(keeper, "work/late")
    if attempt.state is not AttemptState.WORKING:
        return False
    with keeper.hive.ledger.read() as connection:
        work = gather_work(keeper.hive.settings, task, attempt.number, None, {}, runs, attempt)
        if awaits_router(keeper.hive.places, connection, work):
            return False
    with keeper.hive.ledger.write(keeper.authority) as tx:
        end_mail_of_attempt(tx, task, attempt, is_reported=True)
        fail_attempt(tx, task, attempt, why="it was lost", at=tx.now)
    return True


def gather(keeper: Keeper, key: str) -> tuple[TaskRow, AttemptRow, list[RunRow]]:
    """Gather a task, its first attempt, and that one's runs."""
    with keeper.hive.ledger.read() as connection:
        task, attempt = queries.find_task(connection, key), queries.find(connection, AttemptRow, task=key, number=1)
        runs = queries.list_runs_of_attempt(connection, key, 1)
    assert task is not None
    assert attempt is not None
    return task, attempt, runs


def lose_agent(keeper: Keeper, key: str) -> None:
    """Record that an agent's run is over, if it is not."""
    for run in gather(keeper, key)[2]:
        if run.state is RunState.RUNNING:
            with keeper.hive.ledger.write(keeper.authority) as tx:
                note_lost(tx, run, "the story is over")


def carry_to_the_end(stage: Play) -> None:
    """Carry what is left, then end the tasks."""
    carry(stage)
    with stage.keeper() as keeper:
        for name in WORKERS:
            end(keeper, f"work/{name}")


def end(keeper: Keeper, key: str) -> None:
    task, attempt, _ = gather(keeper, key)
    if task.state is TaskState.CANCELLED:
        return
    with keeper.hive.ledger.write(ME) as tx:
        cancel_task(tx, task)
    lose_agent(keeper, key)
    if attempt.state is AttemptState.WORKING:
        with keeper.hive.ledger.write(keeper.authority) as tx:
            cancel_attempt(tx, task, attempt)


def check(stage: Play) -> list[str]:
    """Check that each message is recorded once and was read once, and that all of it is the router's word."""
    with stage.ledger() as ledger, ledger.read() as connection:
        rows = queries.list_mail_matching(connection, limit=-1)
    return [*check_accepted(rows, stage), *check_others(rows), *check_refused(rows)]


def check_accepted(rows: list[MailRow], stage: Play) -> Iterator[str]:
    read = Counter(list_read(stage))
    for text in TO_GOOD:
        found = [row for row in rows if row.get_payload().get("text") == text]
        if len(found) != 1 or read[text] != 1:
            fault = "lost" if not found or not read[text] else "doubled"
            yield f"{fault}: message '{text}': recorded {len(found)} times and read {read[text]} times"
        for row in found:
            sender = "late" if text == LAST else "kind"
            if (row.state, row.sender, row.hops, row.receiver) != (MailState.HANDLED, sender, 0, "good"):
                yield f"lost: message '{text}' is {row.state} from {row.sender} after {row.hops} hops"
            if not row.id.startswith("work/good/mail-") or row.sent_at < "2020":
                yield f"unexpected: message '{text}' has id {row.id} and time {row.sent_at}"


def list_read(stage: Play) -> Iterator[str]:
    """List what the worker could read of what it acknowledged; of a torn file it could read nothing."""
    for path in list_inbox(stage, ACKNOWLEDGED):
        with suppress(ValueError):
            yield json.loads(path.read_text())["payload"]["text"]


def check_others(rows: list[MailRow]) -> Iterator[str]:
    for text, expected in TO_OTHERS.items():
        found = [row for row in rows if row.get_payload().get("text") == text]
        came_to = [(row.type, row.sender, row.receiver, row.reason) for row in found]
        if came_to != [expected] or found[0].state is not MailState.HANDLED:
            yield f"{'doubled' if len(found) > 1 else 'lost'}: message '{text}' came to {came_to}"


def check_refused(rows: list[MailRow]) -> Iterator[str]:
    bad = [row for row in rows if row.sender == "bad"]
    for name, state in REFUSED.items():
        if [row.state for row in bad if row.file == name] != [state]:
            yield f"lost: {name} of a bad worker is not {state}"
    if len(bad) != len(REFUSED) + 1 or any(row.is_open for row in rows):
        yield f"unexpected: {len(bad)} messages of a bad worker, {sum(row.is_open for row in rows)} left open"


scenario(
    "mail",
    "messages in every phase, good and bad, are carried and read, and one of their agents ends",
    given=written,
    act=carry,
    recover=carry_to_the_end,
    check=check,
    planted=(
        Mutant(
            "file moved before it is recorded",
            "what a worker wrote is recorded, whoever dies",
            move_before_record,
            shown="lost: message",
            tier=Tier.KILLS,
            calls="rename",
        ),
        Mutant(
            "DELIVERED before the message is in the inbox",
            "what is delivered can be read",
            record_before_delivery,
            shown="lost: message",
            tier=Tier.KILLS,
            calls="rename",
        ),
        Mutant(
            "file moved by its name",
            "what replaces a file that was read is another message",
            move_by_name,
            shown="lost: message",
        ),
        Mutant(
            "inbox not synced before DELIVERED",
            "what is delivered can be read, whatever happens to the machine",
            sync_no_inbox,
            shown="lost: message",
            tier=Tier.POWER_CUTS,
            at_the_end=True,
        ),
    ),
)
