"""What a worker is told: its task, why the try before it did not land, what was done so far, messages."""

from collections.abc import Sequence
from typing import Any

from hivekeeper.domain.merge import describe_rework
from hivekeeper.domain.rows import MailRow, RunRow
from hivekeeper.domain.session import StartSession

MAX_CHANGED = 50
_CUT_OFF = "You were cut off by a limit of the model's service. Go on with your task exactly where you stopped.\n"


def describe_task(
    prompt: str,
    rework: dict[str, Any] | None,
    told: Sequence[MailRow],
    *,
    session: StartSession | None,
    last: RunRow | None,
    changed: Sequence[str],
) -> tuple[str, str]:
    """Say what an agent reads: its prompt, and its feedback for one that is a command.

    A session that goes on knows its task; one that begins has heard nothing of what others were told.
    """
    feedback = describe_rework(rework) if rework else ""
    words = f"{prompt}\n\n{feedback}" if prompt and feedback else prompt
    if session is None:
        return words, "\n\n".join(filter(None, (feedback, _describe_told(told) if told else "")))
    if last is not None and session.resume:
        return _describe_resumption([message for message in told if message.seq > last.intended_seq]), feedback
    parts = [_describe_so_far(last, changed)] if last is not None else []
    return "\n\n".join([words, *parts, *([_describe_told(told)] if told else [])]), feedback


def _describe_resumption(told: Sequence[MailRow]) -> str:
    """Say to a session that goes on what has come meanwhile."""
    if not told:
        return _CUT_OFF
    said = "\n\n".join(str(message.get_payload()["text"]) for message in told)
    return (
        f"You were interrupted because a message has come for you:\n\n{said}\n\nTake it in, and go on with your task.\n"
    )


def _describe_told(told: Sequence[MailRow]) -> str:
    said = "\n\n".join(str(message.get_payload()["text"]) for message in told)
    return f"# What else you are told\n\n{said}\n"


def _describe_so_far(last: RunRow, changed: Sequence[str]) -> str:
    """Say to a fresh session what the one before it has done."""
    words = [
        "# What was done so far",
        (
            "Somebody began this task before you, here in this directory, and had to stop. What they made is here, in "
            "the files and in git's log. Look at it first (git status, git log), keep what is good, go on from there."
        ),
    ]
    if changed:
        names = "\n".join(f"- {path}" for path in changed[:MAX_CHANGED])
        words.append(f"They changed:\n\n{names}" + ("\n- …" if len(changed) > MAX_CHANGED else ""))
    if last.words and last.ended_well:
        words.append(f"Their last words: {last.words}")
    return "\n\n".join(words) + "\n"
