"""`hive agent` and `hive prime`."""

import sys
from typing import Annotated

import typer

from hivekeeper.cli import render
from hivekeeper.cli.here import Json, Reason, me, open_here, read_here
from hivekeeper.commands import agents as commands
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError
from hivekeeper.hive import find_keeper_state
from hivekeeper.settings import Settings
from hivekeeper.store import agent_queries
from hivekeeper.views import agents as views
from hivekeeper.views.coordinator import prime_coordinator

agent_app = typer.Typer(no_args_is_help=True, help="Agents: who works, what each has done and learnt.")

Name = Annotated[str, typer.Argument(help="An agent's name.")]
Role = Annotated[str, typer.Option(help="What it is, in a line.")]
Strengths = Annotated[list[str] | None, typer.Option("--strength", help="What it is good at; may be repeated.")]


@agent_app.command("ls")
def agent_ls(
    *, everyone: Annotated[bool, typer.Option("--all", help="The retired ones too.")] = False, json: Json = False
) -> None:
    """List agents with their records."""
    with read_here().ledger.read() as connection:
        rows = views.list_agents(connection, retired=everyone)
    if json:
        render.print_json(rows)
        return
    if not rows:
        render.print_lines(
            "There are no agents yet. They are made when tasks with prompts run, or by hand: hive agent new NAME"
        )
        return
    for row in rows:
        row["share"] = "" if row["share"] is None else f"{row['share']:.0%}"
        row["strengths"] = ", ".join(row["strengths"])
    columns = {"agent": "Agent", "state": "State", "sessions": "Sessions", "landed": "Landed", "rejected": "Rejected"}
    columns |= {"stalled": "Stalled", "failed": "Failed", "share": "At least", "strengths": "Strengths"}
    spare = ("stalled", "failed", "rejected", "sessions", "share", "landed")
    render.print_table(rows, columns, texts=("strengths",), spare=spare)
    for row in rows:
        for problem in row["problems"]:
            render.print_lines(problem)


@agent_app.command("show")
def agent_show(name: Name, *, json: Json = False) -> None:
    """Show an agent: its record, what it has learnt, its last sessions, and where its files are."""
    records = read_here()
    with records.ledger.read() as connection:
        agent = commands.get_agent(connection, name)
        view = {**views.show_agent(connection, agent), "files": str(records.places.agents / agent.name)}
    if json:
        render.print_json(view)
        return
    role = f": {view['role']}" if view["role"] else ""
    render.print_lines(f"{view['agent']}{role} ({view['state']})")
    if view["strengths"]:
        render.print_lines(f"Good at: {', '.join(view['strengths'])}")
    share = (
        "" if view["share"] is None else f"; at least {view['share']:.0%} of its attempts land, with 95 % confidence"
    )
    told = ", ".join(f"{view[name]} {name}" for name in ("landed", "rejected", "stalled", "failed"))
    render.print_lines(f"{say_count(view['sessions'], 'session')}: {told}{share}")
    for topic, lessons in view["expertise"].items():
        render.print_lines(*([f"{topic.capitalize()}:"] if lessons else []), *(f"  - {lesson}" for lesson in lessons))
    for session in view["last_sessions"]:
        render.print_lines("", *session.rstrip().splitlines())
    render.print_lines("", f"Files: {view['files']}", *view["problems"])


@agent_app.command("new")
def agent_new(name: Name, *, role: Role = "", strength: Strengths = None, reason: Reason = "") -> None:
    """Create an agent. Plans name it (agent: NAME), or it is chosen by its strengths."""
    hive = open_here()
    with hive.ledger.write(me()) as tx:
        commands.create_agent(tx, name, role=role, strengths=strength or (), why=reason)
    typer.echo(f"Created agent {name}. Its files, which you may edit: {hive.places.agents / name}")


@agent_app.command("retire")
def agent_retire(name: Name, *, reason: Reason = "") -> None:
    """Give an agent no more work. What it did and knows stays, and a plan that names it still gets it."""
    with open_here().ledger.write(me()) as tx:
        agent = commands.get_agent(tx.connection, name)
        done = commands.retire_agent(tx, agent, why=reason)
    again = f"To bring it back: hive agent restore {agent.name}"
    typer.echo(f"{agent.name} has retired. {again}" if done else f"{agent.name} had retired before. {again}")


@agent_app.command("restore")
def agent_restore(name: Name, *, reason: Reason = "") -> None:
    """Give a retired agent work again."""
    with open_here().ledger.write(me()) as tx:
        agent = commands.get_agent(tx.connection, name)
        done = commands.restore_agent(tx, agent, why=reason)
    typer.echo(f"{agent.name} gets work again." if done else f"{agent.name} has not retired.")


@agent_app.command("rename")
def agent_rename(name: Name, new: Annotated[str, typer.Argument(help="Its new name.")], *, reason: Reason = "") -> None:
    """Rename an agent. It keeps everything, and plans that use the old name still get it."""
    with open_here().ledger.write(me()) as tx:
        agent = commands.get_agent(tx.connection, name)
        done = commands.rename_agent(tx, agent, new, why=reason)
    typer.echo(f"{agent.name} is {new} now." if done else f"It is called {new} already.")


def prime(
    who: Annotated[str, typer.Argument(help="A task, or an agent.", metavar="TASK|AGENT")] = "",
    *,
    role: Annotated[str, typer.Option(help="`coordinator`: the rules for one, and what is open.")] = "",
) -> None:
    """Show exactly what a new session of a task or an agent reads before it begins."""
    if role not in ("", "coordinator") or bool(who) == bool(role):
        advice = "Name a task or an agent, or type: hive prime --role coordinator"
        raise InputError("Nothing to show was named, or two things.", advice=advice)
    if role:
        records = read_here()
        with records.ledger.read() as connection:
            state = find_keeper_state(connection, records.ledger.clock, Settings().abandoned_after_s)
            sys.stdout.write(prime_coordinator(connection, state, now=records.ledger.clock.now()))
        return
    from hivekeeper.working.priming import prime_agent, prime_task  # noqa: PLC0415 - only this command needs git

    hive = open_here()
    with hive.ledger.read() as connection:
        agent = agent_queries.find_agent(connection, who)
        if agent is not None:
            text = prime_agent(connection, agent)
        else:
            try:
                text = prime_task(hive.places, connection, hive.settings, who)
            except InputError as error:
                raise InputError(error.what.replace("no task", "no task or agent"), advice=error.advice) from None
    sys.stdout.write(text)
