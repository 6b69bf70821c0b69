"""What a worker says to others, and the sentence that tells it what came of it; commands and tools have this in common.

What the hive refuses is an InputError with its reason.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, assert_never

from hivekeeper.domain.agents import MAX_LESSON, TOPICS
from hivekeeper.domain.protocol import (
    ACK,
    ADDRESSES,
    HELP_REQUEST,
    INFORM,
    LESSON,
    SEANCE,
    STATUS_UPDATE,
    TASK_COMPLETE,
    Role,
)
from hivekeeper.domain.seance import ASKED
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError
from hivekeeper.git.own_clone import has_changes
from hivekeeper.mailbox.worker import Message, Posted, Refused, Sent, Waiting, WorkerMailbox, find_mailbox

SEANCE_WITHIN_S = 30.0
_DONE = "done"


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a message: its id, "sent", "waiting" or "answered", and the sentence that says so."""

    id: str
    state: str
    sentence: str


class Reporter:
    """A worker's voice."""

    def __init__(self, box: WorkerMailbox, environment: Mapping[str, str]) -> None:
        self.box = box
        self._environment = environment

    def send(self, to: str, payload: Mapping[str, Any], type_: str = INFORM, given_id: str = "") -> Told:
        """Send a message."""
        if not payload:
            raise InputError("There is nothing to send.", advice="Add a text, or --payload.")
        return self._tell(self.box.send(type_, to, payload, given_id=given_id), f"Sent to {to}.")

    def reply(self, wanted: str, payload: Mapping[str, Any], type_: str = "", to: str = "") -> Told:
        """Reply to a message, which is then done; the same reply twice is one."""
        if not payload:
            raise InputError("There is nothing to send.", advice="Add a text, or --payload.")
        asked = self.box.find(wanted)
        if asked is None and not to:
            what = f"There is no message '{wanted}' in your inbox."
            advice = "To see what is: hive mail ls. If it was in your prompt, add its sender: --to SENDER"
            raise InputError(what, advice=advice)
        to, parent = to or (asked.sender if asked else ""), asked.id if asked else wanted
        type_ = type_ or (ACK if ADDRESSES.get(to) is Role.QUEUE else INFORM)
        said = json.dumps([parent, type_, to, payload], sort_keys=True)
        id_ = f"re-{hashlib.sha256(said.encode('utf-8', 'backslashreplace')).hexdigest()[:24]}"
        told = self._tell(self.box.send(type_, to, payload, in_reply_to=parent, given_id=id_), f"Replied to {to}.")
        if asked is not None and told.state == "sent":
            self.box.acknowledge(asked)
        return told

    def read(self, wanted: str = "") -> Message:
        """Get a message, the oldest new one if none is named; then it is not new, and done if it expects no reply."""
        message = self.box.get(wanted) if wanted else self.box.get_next()
        if message.is_new:
            self.box.mark_read(message)
        if not message.expects_reply:
            self.box.acknowledge(message)
        return message

    def acknowledge(self, wanted: str) -> str:
        """Say that a message is dealt with."""
        message = self.box.get(wanted)
        return f"{message.id} is done." if self.box.acknowledge(message) else f"{message.id} was done already."

    def report_progress(self, text: str) -> Told:
        """Tell how the work is going."""
        posted = self.box.send(STATUS_UPDATE, Role.DASHBOARD.value, {"text": text})
        return self._tell(posted, "Shown as your progress.")

    def ask_for_help(self, text: str, *, is_blocking: bool = False) -> Told:
        """Ask the supervisor for help."""
        posted = self.box.send(HELP_REQUEST, Role.SUPERVISOR.value, {"text": text, "blocking": is_blocking})
        ended = "End your turn now; you will be resumed with the answer. (A command finds it in its inbox.)"
        waits = ended if is_blocking else "The answer will be in your inbox: hive mail ls"
        return self._tell(posted, "Asked for help.", waits)

    def report_lesson(self, text: str, topic: str = "") -> Told:
        """Say what will help in later sessions."""
        if topic and topic not in TOPICS:
            raise InputError(f"There is no topic '{topic}'.", advice=f"The topics are {', '.join(TOPICS)}.")
        if not text.strip() or len(text) > MAX_LESSON:
            raise InputError(f"A lesson has 1 to {MAX_LESSON} characters.")
        posted = self.box.send(LESSON, Role.SUPERVISOR.value, {"text": text, "topic": topic or TOPICS[0]})
        return self._tell(posted, "Noted; it is kept when your change lands.")

    def hold_seance(self, question: str = "", within_s: float = SEANCE_WITHIN_S) -> Told:
        """Ask what earlier sessions of this task and of this agent tried, and wait a while for the answer."""
        posted = self.box.send(SEANCE, Role.SUPERVISOR.value, {"text": question})
        told = self._tell(posted, "Asked.", "The answer will be in your inbox: hive mail ls")
        answer = self.box.wait_for_answer(posted.id, ASKED, within_s)
        if answer is None:
            return told
        if answer.is_new:
            self.box.mark_read(answer)
        self.box.acknowledge(answer)
        return Told(posted.id, "answered", str(answer.payload.get("text") or ""))

    def report_done(self, summary: str = "", nothing_to_change: str = "") -> Told:
        """Say that the task is finished; an unchanged clone is refused unless it is said why nothing has to change."""
        if not nothing_to_change and self._has_changed() is False:
            what = "You have changed nothing, so there is nothing to report."
            raise InputError(what, advice="If nothing has to change: hive done --nothing-to-change 'why'")
        payload = {"task_id": self._environment.get("HIVE_TASK"), "summary": summary or nothing_to_change}
        payload |= {"nothing_to_change": nothing_to_change} if nothing_to_change else {}
        posted = self.box.send_once(TASK_COMPLETE, Role.QUEUE.value, payload, _DONE)
        done = "Reported as done." if posted.is_new else "It was reported as done before."
        return self._tell(posted, done, "End your turn now; your work is checked next.")

    def describe_new(self) -> str:
        """Say how many messages are new; "" if none."""
        count = self.box.count_new()
        return f"You have {say_count(count, 'new message')}." if count else ""

    def _has_changed(self) -> bool | None:
        clone = Path(self._environment["HIVE_MAILBOX"]).parent / "work"
        return has_changes(clone, self._environment.get("HIVE_START", "")) if (clone / ".git").exists() else None

    def _tell(self, posted: Posted, words: str, then: str = "") -> Told:
        match self.box.wait_for_fate(posted.id):
            case Sent():
                return Told(posted.id, "sent", f"{words} {then}".strip())
            case Waiting():
                return Told(
                    posted.id, "waiting", f"Written to your outbox; the hive has not taken it yet. {then}".strip()
                )
            case Refused(reason):
                raise InputError(f"Refused: {reason}.", advice="Nothing was delivered.")
            case unknown:
                assert_never(unknown)


def find_reporter() -> Reporter:
    """Find the voice of the worker that this process belongs to."""
    return Reporter(find_mailbox(os.environ), os.environ)
