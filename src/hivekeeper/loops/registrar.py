"""The registrar: keeps agents' files as the ledger says, and the ledger as people edit the files.

Rules:
1. What a file held when it was last written is noted. A file that is as noted is written again when the ledger says
   something else; one that is not, a person has edited: what they changed is recorded, then the file is written.
2. An edited file that cannot be used is left as it is, and told; what the ledger says stays in use.
3. A directory that a person made, with an identity in it, is a new agent.
4. A history gets each session once, when it has ended; a long one is cut in two, and the older half is kept first.

The order is: events, files, notes. A crash in between leaves a file that differs from its note and says nothing new.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hivekeeper.commands import agents as commands
from hivekeeper.domain import events as e
from hivekeeper.domain.agent_rows import AgentRow
from hivekeeper.domain.agents import TOPICS, AgentFile
from hivekeeper.domain.names import is_name
from hivekeeper.domain.protocol import is_free_address
from hivekeeper.domain.states import OPEN_ATTEMPTS
from hivekeeper.errors import InputError
from hivekeeper.identity import history
from hivekeeper.identity.files import list_directories, read_file, read_stamp, write_file
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.store import agent_queries
from hivekeeper.store.database import Connection
from hivekeeper.store.ledger import Transaction
from hivekeeper.views.agents import describe_session, list_lessons

IDENTITY, EXPERTISE, HISTORY = "identity.yaml", "expertise.yaml", "work-history.md"
_EDITED = "edited by hand"
Values = Mapping[str, str | int | Sequence[str]]


@dataclass(frozen=True, slots=True)
class Edit:
    """What a person has changed in a file: what it said when it was last written, and what it says."""

    file: str
    before: AgentFile
    now: AgentFile


class Registrar(Loop):
    """Keeps the files of agents."""

    name = "registrar"
    order = 105
    wakes = Wakes(
        (
            e.AgentCreated,
            e.AgentDescribed,
            e.AgentLearnt,
            e.AgentUnlearnt,
            e.AgentRenamed,
            e.TaskCompleted,
            e.AttemptFailed,
            e.AttemptUnknown,
            e.AttemptCancelled,
        )
    )
    rest_s, interval_s = 0.5, 10.0  # people's edits are noticed by looking

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        assert parts.agent_files is not None
        self._files = parts.agent_files
        self._done: dict[str, object] = {}  # what of an agent and its files was seen when it was last in order

    def run_once(self) -> Counts:
        """Bring files and ledger together, agent by agent."""
        if not self._settings.identity:
            return {}
        with self._ledger.read() as connection:
            known = agent_queries.list_agents(connection)
        counts = {"made": self._take_in_new({name for agent in known for name in (agent.name, *agent.list_former())})}
        with self._ledger.read() as connection:
            agents = agent_queries.list_agents(connection)
            seen = agent_queries.count_what_files_say(connection)
        for agent in agents:
            if self._look(agent, seen) != self._done.get(agent.name):
                counts["changed"] = counts.get("changed", 0) + self._sync(agent)
                self._done[agent.name] = self._look(agent, seen)
        return {name: count for name, count in counts.items() if count}

    def _look(self, agent: AgentRow, seen: Mapping[str, object]) -> object:
        """Look at what decides whether there is anything to do about an agent."""
        place = self._places.agents / agent.name
        return agent, seen.get(agent.name), [read_stamp(place / file) for file in (IDENTITY, EXPERTISE, HISTORY)]

    def _take_in_new(self, known: set[str]) -> int:
        """Record agents that a person made by making their files."""
        made = 0
        for name in list_directories(self._places.agents):
            path = self._places.agents / name / IDENTITY
            if name in known or (stamp := read_stamp(path)) is None or self._done.get(f"/{name}") == stamp:
                continue
            found = self._read(AgentRow(name, ""), IDENTITY)
            if isinstance(found, AgentFile) and not (is_name(name) and is_free_address(name)):
                found = f"{path}: {name!r} cannot be an agent's name; see hive agent new"
            with self._ledger.write(self._authority) as tx:
                if isinstance(found, AgentFile):
                    commands.create_agent(tx, name, role=found.role, strengths=found.strengths, why="made by hand")
                    made += 1
                else:
                    tx.keep_file(name, IDENTITY, "", str(found))
            self._done[f"/{name}"] = stamp
        return made

    # --- one agent ----------------------------------------------------------------------------------------------------

    def _sync(self, agent: AgentRow) -> int:
        """Record what a person has edited, then write what the ledger says; tell how much that was."""
        self._move_directory(agent)
        notes: dict[str, tuple[str, str]] = {}
        with self._ledger.read() as connection:
            noted = {file: self._find_note(connection, agent, file) for file in (IDENTITY, EXPERTISE)}
        edits = []
        for file, note in noted.items():
            found = read_file(self._places.agents / agent.name / file)
            if found.problem or (found.text is not None and found.text != note):
                now = self._read(agent, file)
                if isinstance(now, AgentFile):
                    edits.append(Edit(file, self._read_text(agent, file, note), now))
                else:
                    notes[file] = (note, str(now))
        if any(edit.before != edit.now for edit in edits):
            with self._ledger.write(self._authority) as tx:
                for edit in edits:
                    _record(tx, agent, edit)
        written = self._write(agent, notes)
        with self._ledger.read() as connection:
            changed = [(file, *said) for file, said in notes.items() if not _is_noted(connection, agent, file, said)]
        if changed:
            with self._ledger.write(self._authority) as tx:
                for file, text, problem in changed:
                    tx.keep_file(agent.name, file, text, problem)
        return written + len(edits)

    def _write(self, agent: AgentRow, notes: dict[str, tuple[str, str]]) -> int:
        """Write what has changed, except files that cannot be used; note what they hold."""
        place, written = self._places.agents / agent.name, 0
        with self._ledger.read() as connection:
            agent = agent_queries.find_agent(connection, agent.name) or agent
            ended = [s for s in agent_queries.list_sessions(connection, agent.name) if s.state not in OPEN_ATTEMPTS]
            values: dict[str, Values] = {
                IDENTITY: {
                    "name": agent.name,
                    "role": agent.role,
                    "created": agent.created_at[:10],
                    "sessions_completed": len(ended),
                    "expertise_path": str(place / EXPERTISE),
                    "strengths": list(agent.list_strengths()),
                },
                EXPERTISE: list_lessons(connection, agent.name),
            }
            for file, said in values.items():
                if file not in notes:
                    old = read_file(place / file).text or ""
                    text = self._files.write_agent_file(file, said, old)
                    written += text != old
                    if text != old:
                        write_file(place / file, text)
                    notes[file] = (text, "")
            found = read_file(place / HISTORY)
            if found.problem:
                notes[HISTORY] = ("", f"{place / HISTORY}: {found.problem}")
                return written
            older = [read_file(path).text or "" for path in place.glob(history.OLDER)]
            there = {number for text in (found.text or "", *older) for number in history.list_sessions(text)}
            late = [each for each in ended if each.session not in there]
            entries = {each.session: describe_session(connection, each) for each in late}
        text = history.add_sessions(found.text or "", agent.name, entries)
        while (cut := history.cut_history(text, agent.name)) is not None:
            first, text, last = cut
            write_file(place / history.name_older(last), first)
        if text != found.text:
            write_file(place / HISTORY, text)
            written += 1
        notes[HISTORY] = ("", "")
        return written

    def _move_directory(self, agent: AgentRow) -> None:
        """Give the files of an agent that was renamed their new place."""
        place = self._places.agents / agent.name
        for former in reversed(agent.list_former()):
            if not place.exists() and (old := self._places.agents / former).is_dir() and not old.is_symlink():
                old.rename(place)

    def _find_note(self, connection: Connection, agent: AgentRow, file: str) -> str:
        names = (agent.name, *reversed(agent.list_former()))
        return next(filter(None, (agent_queries.find_file(connection, name, file) for name in names)), "")

    def _read(self, agent: AgentRow, file: str) -> AgentFile | str:
        """Read what a person has written; a sentence says why it cannot be used."""
        path = self._places.agents / agent.name / file
        found = read_file(path)
        if found.text is None:
            return f"{path}: {found.problem or 'it is gone'}"
        try:
            return self._files.read_agent_file((agent.name, *agent.list_former()), file, str(path), found.text)
        except InputError as error:
            return str(error).partition("\n")[2] or str(error)

    def _read_text(self, agent: AgentRow, file: str, text: str) -> AgentFile:
        """Read what a file held before; nothing where there was none."""
        if not text:
            return AgentFile()
        return self._files.read_agent_file((agent.name, *agent.list_former()), file, file, text)


def _record(tx: Transaction, agent: AgentRow, edit: Edit) -> None:
    """Record what a person has changed, on top of what the ledger says now."""
    now = commands.get_agent(tx.connection, agent.name)
    if edit.file == IDENTITY:
        role = edit.now.role if edit.now.role != edit.before.role else now.role
        gone = {*edit.before.strengths} - {*edit.now.strengths}
        strengths = [each for each in now.list_strengths() if each not in gone]
        strengths += [each for each in edit.now.strengths if each not in {*edit.before.strengths, *strengths}]
        commands.describe_agent(tx, now, role, strengths, why=_EDITED)
        return
    for topic in TOPICS:
        before, after = edit.before.list_lessons(topic), edit.now.list_lessons(topic)
        for lesson in agent_queries.list_lessons(tx.connection, now.name):
            is_kept = lesson.dropped_at is None and lesson.topic == topic
            if is_kept and lesson.text in before and lesson.text not in after:
                commands.unteach(tx, lesson, why=_EDITED)
        for text in after:
            if text not in before:
                commands.teach(tx, now.name, topic, text, "person", why=_EDITED)


def _is_noted(connection: Connection, agent: AgentRow, file: str, said: tuple[str, str]) -> bool:
    row = agent_queries.find_note(connection, agent.name, file)
    return (row.text, row.problem) == said if row is not None else said == ("", "")
