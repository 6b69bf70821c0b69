"""The history of an agent as text: a heading for each session, to which nothing but the next one is added.

A long one is cut in two: its older half becomes a file of its own, and a line says where it is.
"""

import re
from collections.abc import Mapping

MAX_CHARACTERS = 256 << 10
OLDER = "work-history-*.md"
_HEADING = re.compile(r"^## \S+ Session (\d+)\b.*$", re.MULTILINE)
HEAD = "# Work history of {agent}\n\nEach session is added when it has ended; what you write here stays.\n"


def list_sessions(text: str) -> set[int]:
    """List the sessions that a history has."""
    return {int(number) for number in _HEADING.findall(text)}


def add_sessions(text: str, agent: str, sessions: Mapping[int, str]) -> str:
    """Add sessions, in the order given."""
    text = text or HEAD.format(agent=agent)
    return "\n".join([text.rstrip("\n") + "\n", *sessions.values()]) if sessions else text


def cut_history(text: str, agent: str) -> tuple[str, str, int] | None:
    """Cut a history that is too long: its older half, what stays, and the last session of the older half."""
    headings = list(_HEADING.finditer(text))
    if len(text) <= MAX_CHARACTERS or len(headings) < 2:  # noqa: PLR2004 - there must be something on either side
        return None
    middle = next((found for found in headings[1:] if found.start() >= len(text) // 2), headings[-1])
    older = [int(found.group(1)) for found in headings if found.start() < middle.start()]
    name = name_older(max(older))
    stays = f"{HEAD.format(agent=agent)}\nSessions up to {max(older)}: {name}\n\n{text[middle.start() :]}"
    return text[: middle.start()], stays, max(older)


def name_older(last: int) -> str:
    """Name the file of the older sessions, up to one."""
    return f"work-history-{last:06}.md"


def write_session(number: int, date: str, task: str, status: str, branch: str, notes: str) -> str:
    """Write a session; what others said is one line, without control characters."""
    lines = [f"## {date} Session {number}", f"- Task: {_line(task)}", f"- Status: {_line(status)}"]
    lines += [f"- Branch: {_line(branch)}"] if branch else []
    lines += [f"- Notes: {_line(notes)}"] if notes else []
    return "\n".join(lines) + "\n"


def _line(text: str, most: int = 1000) -> str:
    plain = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return plain if len(plain) <= most else f"{plain[:most]} …"
