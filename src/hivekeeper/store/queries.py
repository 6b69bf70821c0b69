"""Every read of the tables, by name, each with one typed answer.

What only names rows is asked by `find` and `list_rows`; whatever deserves a sentence is a `.sql` file of its own. In
those, `{task}` stands for the columns of a row, and `{is_open:run}` or the name of a file that begins with `_` for a
condition that is said once.
"""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import TypeVar

from hivekeeper.domain.events import Event
from hivekeeper.domain.hive_rows import BudgetRow, CursorRow, HeartbeatRow, HoldRow, LeaseRow
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.owners import Owner, name_tree
from hivekeeper.domain.picture import LandedCost
from hivekeeper.domain.protocol import ADDRESSES
from hivekeeper.domain.report import Usage
from hivekeeper.domain.rows import (
    AttemptRow,
    ConvoyRow,
    MergeRow,
    RepoRow,
    RunRow,
    SwarmRow,
    TaskAfterRow,
    TaskPromptRow,
    TaskRow,
)
from hivekeeper.domain.schema import Value, encode_json, get_table
from hivekeeper.domain.states import REFUSED_MAIL, AttemptState, TaskState
from hivekeeper.store.asking import ask, build, enclose, read_sql, write_select
from hivekeeper.store.database import Connection, Parameters
from hivekeeper.store.ledger import to_event

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class SwarmTally:
    """A batch and how it went."""

    swarm: SwarmRow
    attempts: int
    succeeded: int
    working: int
    first_worker: int
    last_worker: int


def find(connection: Connection, row: type[R], **key: Value) -> R | None:
    """Find the row with these values, if there is one."""
    return next(iter(list_rows(connection, row, "", **key)), None)


def list_rows(connection: Connection, row: type[R], order: str, **where: Value) -> list[R]:
    """List the rows with these values, in the order of these columns."""
    return [
        build(row, found) for found in connection.rows(write_select(get_table(row).name, order, tuple(where)), where)
    ]


def find_task(connection: Connection, key: str) -> TaskRow | None:
    """Find a task by its key."""
    return find(connection, TaskRow, key=key)


def list_tasks_by_id(connection: Connection, task_id: str) -> list[TaskRow]:
    """List the tasks a bare id may mean."""
    return list_rows(connection, TaskRow, "position", id=task_id)


def list_tasks_of_convoy(connection: Connection, convoy: str) -> list[TaskRow]:
    """List a convoy's tasks."""
    return list_rows(connection, TaskRow, "position", convoy=convoy)


def list_ready_tasks(
    connection: Connection, limit: int, *, now: str = "", runners: Iterable[str] = ()
) -> list[TaskRow]:
    """List tasks that may be dispatched at a moment; without one, whatever was ever held up still is."""
    return ask(connection, "list_ready_tasks", TaskRow, {"limit": limit, "now": now, "runners": enclose(runners)})


def list_resumable(
    connection: Connection, limit: int, *, now: str, runners: Iterable[str] = ()
) -> list[tuple[AttemptRow, TaskRow]]:
    """List parked attempts, with their tasks, that nothing holds up any more; a cancelled one waits for nothing."""
    return _pairs(connection, "list_resumable", {"limit": limit, "now": now, "runners": enclose(runners)})


def list_holds(connection: Connection) -> list[HoldRow]:
    """List everything that is, or once was, held up."""
    return list_rows(connection, HoldRow, "scope, name, cause")


def list_budgets(connection: Connection) -> list[BudgetRow]:
    """List what a person has allowed beyond what was planned."""
    return list_rows(connection, BudgetRow, "scope, name")


def list_unread_runs(connection: Connection) -> list[RunRow]:
    """List runs of agent programs that nobody has read to their end."""
    return ask(connection, "list_unread_runs", RunRow)


def sum_usage_of_task(connection: Connection, task: str) -> Usage:
    """Add up what agent programs used for a task."""
    return _sum(connection, "sum_usage_of_task", {"task": task})


def sum_usage_of_convoy(connection: Connection, convoy: str) -> Usage:
    """Add up what agent programs used for all tasks of a convoy."""
    return _sum(connection, "sum_usage_of_convoy", {"first": f"{convoy}/", "beyond": f"{convoy}0"})


def sum_usage_of_day(connection: Connection, day: str) -> Usage:
    """Add up what agent programs used on a day (UTC)."""
    return _sum(connection, "sum_usage_of_day", {"first": f"{day}T", "beyond": f"{day}Z"})


def list_paid_runs(connection: Connection, *, since: str = "") -> list[tuple[RunRow, str]]:
    """List the runs of agent programs since a moment, each with who its task is for."""
    width = len(fields(RunRow))
    rows = connection.rows(read_sql("list_paid_runs"), {"since": since})
    return [(build(RunRow, row[:width]), str(row[width] or "")) for row in rows]


def list_landed_costs(connection: Connection) -> list[LandedCost]:
    """List what tasks that landed have cost, by repository and runner."""
    return ask(connection, "list_landed_costs", LandedCost)


def list_strengths(connection: Connection) -> list[str]:
    """List the strengths that agents have and tasks ask for."""
    return [str(row[0]) for row in connection.rows(read_sql("list_strengths"))]


def list_tasks_in_state(connection: Connection, state: TaskState) -> list[TaskRow]:
    """List tasks in one state."""
    return list_rows(connection, TaskRow, "priority DESC, position", state=state)


def list_unfinished_predecessors(connection: Connection, task: str) -> list[TaskRow]:
    """List what a task still waits for."""
    return ask(connection, "list_unfinished_predecessors", TaskRow, {"task": task})


def list_predecessors(connection: Connection, task: str) -> list[str]:
    """List the keys of all tasks that come before this one."""
    return [row.after for row in list_rows(connection, TaskAfterRow, "after", task=task)]


def list_runs_of(connection: Connection, owner: Owner) -> list[RunRow]:
    """List an owner's runs, oldest first."""
    return list_rows(connection, RunRow, "intended_seq, id", owner_kind=owner.kind, owner=owner.name, round=owner.round)


def list_edges(connection: Connection, convoy: str) -> list[TaskAfterRow]:
    """List which tasks of a convoy come after which."""
    return ask(connection, "list_edges", TaskAfterRow, {"first": f"{convoy}/", "beyond": f"{convoy}0"})


def list_runs_of_tree(connection: Connection, repo: str, tree: str) -> list[RunRow]:
    """List the runs that verified a tree, by whichever gate, oldest first."""
    name = name_tree(repo, tree)
    return ask(connection, "list_runs_of_tree", RunRow, {"first": f"{name}-", "last": f"{name}-~"})


def find_mail(connection: Connection, mail: str) -> MailRow | None:
    """Find a message by its id."""
    return find(connection, MailRow, id=mail)


def list_open_mail(connection: Connection) -> list[MailRow]:
    """List messages that nobody has handled or returned, oldest first."""
    return ask(connection, "list_open_mail", MailRow, {})


def list_open_mail_of_task(connection: Connection, task: str) -> list[MailRow]:
    """List those of a task, oldest first."""
    return ask(connection, "list_open_mail_of_task", MailRow, {"task": task})


def list_open_mail_to_worker(connection: Connection, task: str) -> list[MailRow]:
    """List those of them that are for the task's worker."""
    return ask(connection, "list_open_mail_to_worker", MailRow, {"task": task, "addresses": enclose(ADDRESSES)})


def list_deliverable_mail(connection: Connection, without: Iterable[str], limit: int) -> list[tuple[MailRow, int]]:
    """List messages for inboxes of sessions at work, each with its attempt; those of some tasks are left out."""
    found = connection.rows(read_sql("list_deliverable_mail"), {"without": enclose(without), "limit": limit})
    return [(build(MailRow, row[:-1]), int(row[-1])) for row in found]


def list_undelivered_to_hive(connection: Connection) -> list[MailRow]:
    """List messages to the hive and to people that were not delivered yet."""
    return ask(connection, "list_undelivered_to_hive", MailRow, {"addresses": enclose(ADDRESSES)})


def list_mail_for_agent(connection: Connection, agent: str) -> list[MailRow]:
    """List messages that wait for the next session of an agent."""
    return ask(connection, "list_mail_for_agent", MailRow, {"agent": agent})


def list_mail_of_file(
    connection: Connection, origin: str, digest: str, file: str, given_id: str | None
) -> list[MailRow]:
    """List the messages that a worker sent with a file of this name and content, or with this id of its own."""
    rows = list_rows(connection, MailRow, "seq", origin=origin, digest=digest, file=file)
    named = list_rows(connection, MailRow, "seq", origin=origin, given_id=given_id) if given_id and not rows else []
    return rows or [row for row in named if row.state not in REFUSED_MAIL]


def count_conversations(
    connection: Connection, senders: Iterable[str], receivers: Iterable[str], since: str, until: str
) -> int:
    """Count the conversations that one has started with another, each by any of its addresses, in a span of time."""
    asked = {"senders": encode_json(list(senders)), "receivers": encode_json(list(receivers))}
    return int(connection.rows(read_sql("count_conversations"), {**asked, "since": since, "until": until})[0][0])


def count_replies(connection: Connection, parent: str, sender: str) -> int:
    """Count the replies to a message that its sender has, and that were not refused."""
    rows = list_rows(connection, MailRow, "seq", parent=parent, sender=sender)
    return sum(row.state not in REFUSED_MAIL for row in rows)


def count_refused_mail(connection: Connection, origin: str) -> int:
    """Count the messages of an attempt that were refused."""
    return int(connection.rows(read_sql("count_refused_mail"), {"origin": origin})[0][0])


def list_unanswered(connection: Connection, before: str) -> list[MailRow]:
    """List messages that expect a reply, sent before a moment, open and without one."""
    return ask(connection, "list_unanswered", MailRow, {"before": before})


def has_changed(connection: Connection, task: str, agent: str | None, seq: int) -> bool:
    """Whether a task, or what is said to its worker, has changed since an event."""
    return bool(connection.rows(read_sql("has_changed"), {"task": task, "agent": agent, "seq": seq})[0][0])


def list_stale_mail(connection: Connection) -> list[MailRow]:
    """List messages to workers that were not delivered, and that nobody will read any more."""
    return ask(connection, "list_stale_mail", MailRow, {"addresses": enclose(ADDRESSES)})


def list_sessions_of_agent(connection: Connection, agent: str) -> list[AttemptRow]:
    """List the attempts that an agent is at work on, or parked."""
    return ask(connection, "list_sessions_of_agent", AttemptRow, {"agent": agent})


def list_tasks_of_agent(connection: Connection, agent: str) -> list[TaskRow]:
    """List the tasks that a plan gives to an agent."""
    return list_rows(connection, TaskRow, "position", agent=agent)


def list_open_workers(connection: Connection, worker: int) -> list[AttemptRow]:
    """List the attempts under way of the workers with this number, one a convoy at most."""
    return ask(connection, "list_open_workers", AttemptRow, {"worker": worker})


def list_addresses(connection: Connection) -> list[str]:
    """List the addresses of agents and workers that a message may mean now."""
    return [str(row[0]) for row in connection.rows(read_sql("list_addresses"))]


def list_mail_matching(  # noqa: PLR0913 - one a condition
    connection: Connection,
    *,
    limit: int,
    task: str = "",
    type_: str = "",
    state: str = "",
    address: str = "",
    words: str = "",
    since: str = "",
    until: str = "",
    before: int | None = None,
) -> list[MailRow]:
    """List messages by what is asked of them, newest first."""
    asked = {"task": task, "type": type_, "state": state, "address": address, "words": words.casefold()}
    when = {"since": since, "until": until, "before": before}
    return ask(connection, "list_mail_matching", MailRow, {**asked, **when, "limit": limit})


def list_set_aside_mail(connection: Connection, state: str, limit: int) -> list[MailRow]:
    """List quarantined messages, or dropped ones of open tasks, newest first."""
    return ask(connection, "list_set_aside_mail", MailRow, {"state": state, "limit": limit})


def list_mail(connection: Connection, task: str, attempt: int) -> list[MailRow]:
    """List what the hive had to say to an attempt, oldest first."""
    return list_rows(connection, MailRow, "seq", task=task, attempt=attempt)


def list_ready_branches(connection: Connection) -> list[TaskRow]:
    """List branches of a person's that wait to be brought in; they need no worker."""
    return ask(connection, "list_ready_branches", TaskRow)


def list_repos_relanding(connection: Connection) -> set[str]:
    """List the repositories in which something that landed is being made again."""
    return {str(row[0]) for row in connection.rows(read_sql("list_repos_relanding"))}


def find_prompt(connection: Connection, task: str) -> str:
    """Find what a task tells its worker; nothing when it is a command."""
    found = find(connection, TaskPromptRow, task=task)
    return found.text if found else ""


def count_tasks_by_state(connection: Connection, convoy: str) -> dict[TaskState, int]:
    """Count a convoy's tasks in each state."""
    rows = connection.rows("SELECT state, count(*) FROM task WHERE convoy = :convoy GROUP BY state", {"convoy": convoy})
    return {TaskState(state): count for state, count in rows}


def has_task_under_way(connection: Connection, convoy: str) -> bool:
    """Tell whether anything of a convoy is under way."""
    return bool(connection.rows(read_sql("has_task_under_way"), {"convoy": convoy}))


def count_startable(connection: Connection, convoy: str) -> int:
    """Count the PENDING tasks of a convoy that will start by themselves."""
    return int(connection.rows(read_sql("count_startable"), {"convoy": convoy})[0][0])


def find_last_end(connection: Connection, convoy: str) -> str | None:
    """Find when the last task of a convoy was completed."""
    found: str | None = connection.rows(
        "SELECT max(completed_at) FROM task WHERE convoy = :convoy", {"convoy": convoy}
    )[0][0]
    return found


def list_open_attempts(connection: Connection, state: AttemptState) -> list[tuple[AttemptRow, TaskRow]]:
    """List attempts in an open state, with their tasks."""
    return _pairs(connection, "list_open_attempts", {"state": state})


def list_attempts_of_task(connection: Connection, task: str) -> list[AttemptRow]:
    """List every try at a task."""
    return list_rows(connection, AttemptRow, "number", task=task)


def list_runs_of_open_attempts(connection: Connection, state: AttemptState) -> dict[tuple[str, int], list[RunRow]]:
    """List the runs of open attempts, by attempt, oldest first."""
    found: dict[tuple[str, int], list[RunRow]] = {}
    for run in ask(connection, "list_runs_of_open_attempts", RunRow, {"state": state}):
        found.setdefault((str(run.task), int(run.attempt or 0)), []).append(run)
    return found


def list_runs_of_attempt(connection: Connection, task: str, attempt: int) -> list[RunRow]:
    """List one attempt's runs, oldest first."""
    return list_rows(connection, RunRow, "intended_seq, id", task=task, attempt=attempt)


def list_failed_backups(connection: Connection, tries: int) -> list[RunRow]:
    """List the last tries to push what an attempt made to a second repository, where all of them failed."""
    return ask(connection, "list_failed_backups", RunRow, {"tries": tries})


def find_run(connection: Connection, run: str) -> RunRow | None:
    """Find a run by its id."""
    return find(connection, RunRow, id=run)


def list_open_runs(connection: Connection) -> list[RunRow]:
    """List runs that may be doing something."""
    return ask(connection, "list_open_runs", RunRow)


def list_open_merges(connection: Connection) -> list[MergeRow]:
    """List the merge queue in order."""
    return ask(connection, "list_open_merges", MergeRow)


def find_merge(connection: Connection, task: str, attempt: int) -> MergeRow | None:
    """Find one attempt's entry in the merge queue."""
    return find(connection, MergeRow, task=task, attempt=attempt)


def find_repo(connection: Connection, name: str) -> RepoRow | None:
    """Find a repository."""
    return find(connection, RepoRow, name=name)


def list_repos(connection: Connection) -> list[RepoRow]:
    """List all repositories."""
    return list_rows(connection, RepoRow, "name")


def find_convoy(connection: Connection, name: str) -> ConvoyRow | None:
    """Find a convoy."""
    return find(connection, ConvoyRow, name=name)


def list_convoys(connection: Connection, *, archived: bool = False) -> list[ConvoyRow]:
    """List convoys, the archived ones only when asked for."""
    return ask(connection, "list_convoys", ConvoyRow, {"archived": int(archived)})


def list_swarms(connection: Connection, convoy: str) -> list[SwarmTally]:
    """List a convoy's batches and how they went."""
    width = len(fields(SwarmRow))
    rows = connection.rows(read_sql("list_swarms"), {"convoy": convoy})
    return [SwarmTally(build(SwarmRow, row[:width]), *(value or 0 for value in row[width:])) for row in rows]


def list_closable_swarms(connection: Connection) -> list[SwarmRow]:
    """List batches that are over."""
    return ask(connection, "list_closable_swarms", SwarmRow)


def find_last_swarm_of_task(connection: Connection, task: str) -> int | None:
    """Find the latest batch a task was in."""
    found: int | None = connection.rows("SELECT max(swarm) FROM attempt WHERE task = :task", {"task": task})[0][0]
    return found


def list_removable_sandboxes(connection: Connection, limit: int) -> list[AttemptRow]:
    """List settled attempts whose sandbox is still there."""
    return ask(connection, "list_removable_sandboxes", AttemptRow, {"limit": limit})


def find_lease(connection: Connection) -> LeaseRow | None:
    """Find who holds, or held last, the lease."""
    return find(connection, LeaseRow, id=1)


def find_heartbeat(connection: Connection) -> HeartbeatRow | None:
    """Find the keeper's last heartbeat."""
    return find(connection, HeartbeatRow, id=1)


def count_open_work(connection: Connection) -> tuple[int, int, int]:
    """Count active convoys, open attempts and open runs of the whole hive."""
    convoys, attempts, runs = connection.rows(read_sql("count_open_work"))[0]
    return convoys, attempts, runs


def list_events_about(connection: Connection, subject: str, *, after: int, until: int, limit: int) -> list[Event]:
    """List events about a subject and whatever is beneath it, from the one after `after` to `until`."""
    # "0" is the character next to "/", so that whatever begins with the subject and a "/" is between the two.
    names = {"subject": subject, "first": f"{subject}/", "beyond": f"{subject}0"}
    rows = connection.rows(read_sql("list_events_about"), {**names, "after": after, "until": until, "limit": limit})
    return [to_event(row) for row in rows]


def list_convoys_archived_between(connection: Connection, after: int, until: int) -> list[str]:
    """List the names of convoys that were put away after one event and not after another."""
    rows = connection.rows(read_sql("list_convoys_archived_between"), {"after": after, "until": until})
    return [row[0] for row in rows]


def find_recorded_at(connection: Connection, seq: int) -> str | None:
    """Find when an event was written down."""
    rows = connection.rows("SELECT recorded_at FROM event WHERE seq = :seq", {"seq": seq})
    return rows[0][0] if rows else None


def find_cursor(connection: Connection, name: str) -> CursorRow | None:
    """Find how far a reader of the log has come."""
    return find(connection, CursorRow, name=name)


def list_cursors(connection: Connection) -> list[CursorRow]:
    """List all readers of the log."""
    return list_rows(connection, CursorRow, "name")


def find_checkpoint(connection: Connection, seq: int) -> tuple[int, str] | None:
    """Find the last checkpoint at or before an event."""
    rows = connection.rows(read_sql("find_checkpoint"), {"seq": seq})
    return (rows[0][0], rows[0][1]) if rows else None


def list_checkpoints(connection: Connection) -> list[int]:
    """List at which events a checkpoint was saved, oldest first."""
    return [row[0] for row in connection.rows("SELECT seq FROM checkpoint ORDER BY seq")]


def find_last_checkpoint(connection: Connection) -> int:
    """Find at which event a checkpoint was last saved; 0 when none was."""
    return int(connection.rows("SELECT coalesce(max(seq), 0) FROM checkpoint")[0][0])


def _sum(connection: Connection, name: str, parameters: Parameters) -> Usage:
    return Usage(*(int(value or 0) for value in connection.rows(read_sql(name), parameters)[0]))


def _pairs(connection: Connection, name: str, parameters: Parameters) -> list[tuple[AttemptRow, TaskRow]]:
    width = len(fields(AttemptRow))
    rows = connection.rows(read_sql(name), parameters)
    return [(build(AttemptRow, row[:width]), build(TaskRow, row[width:])) for row in rows]
