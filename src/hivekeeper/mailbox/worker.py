"""The worker's side of a mailbox: plain files, for the commands and servers that run in its sandbox.

A message is written whole (under a name with a dot in front, synced, then renamed), in a file named after its id, so
sending it again changes nothing. What became of it is where its file is: `.sent/NAME`, or `.sent/bad-NAME` beside the
reason. A message in the inbox is new until it was read, and stays there until it is done.
"""

import contextlib
import json
import os
import re
import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.mailbox.boxes import ACKNOWLEDGED, BAD, INBOX, MAX_BYTES, OUTBOX, READ, SENT

ANSWER_WITHIN_S = 2.0
_LOOK_EVERY_S = 0.02
_ID = re.compile(r"(?!bad-)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


@dataclass(frozen=True, slots=True)
class Message:
    """A message in an inbox; `name` is its file's."""

    name: str
    id: str
    type: str
    sender: str
    sent_at: str
    in_reply_to: str | None
    payload: Mapping[str, Any]
    is_new: bool
    expects_reply: bool = False
    is_done: bool = False

    @property
    def text(self) -> str:
        """What it says in words, on one line."""
        said = self.payload.get("text") or self.payload.get("summary")
        return " ".join(str(said or json.dumps(dict(self.payload), ensure_ascii=False)).split())


@dataclass(frozen=True, slots=True)
class Posted:
    """A message that lies in the outbox or was sent; `is_new` tells whether it is there for the first time."""

    id: str
    is_new: bool


@dataclass(frozen=True, slots=True)
class Sent:
    """The hive has accepted it."""


@dataclass(frozen=True, slots=True)
class Refused:
    """The hive has refused it."""

    reason: str


@dataclass(frozen=True, slots=True)
class Waiting:
    """The hive has not looked at it yet."""


Fate = Sent | Refused | Waiting


class WorkerMailbox:
    """The mailbox of the worker that this process belongs to."""

    def __init__(self, path: Path) -> None:
        self._inbox, self._outbox = path / INBOX, path / OUTBOX
        self._done, self._sent = self._inbox / ACKNOWLEDGED, self._outbox / SENT
        self._read = self._inbox / READ

    # --- outbox -----------------------------------------------------------------------------------------------------

    def send(
        self,
        type_: str,
        receiver: str,
        payload: Mapping[str, Any],
        *,
        in_reply_to: str | None = None,
        given_id: str = "",
    ) -> Posted:
        """Put a message into the outbox; one that is there or was sent under this id is left as it is."""
        id_ = given_id or secrets.token_hex(8)
        if not _ID.fullmatch(id_):
            advice = "An id has letters, digits, '.', '_' and '-', and at most 100 of them."
            raise InputError(f"'{id_[:100]}' cannot be the id of a message.", advice=advice)
        message = {"id": id_, "type": type_, "receiver": receiver, "payload": payload}
        message |= {"in_reply_to": in_reply_to} if in_reply_to else {}
        data = json.dumps(message, ensure_ascii=False, indent=1).encode("utf-8", "replace")
        if len(data) > MAX_BYTES:
            raise InputError(f"The message is larger than {MAX_BYTES >> 20} MiB.", advice="Send the path of a file.")
        name = _name(id_)
        with _translate_os_errors():
            if (before := self._find_posted(name)) is not None:
                if before != data:
                    raise InputError(f"Another message was sent as '{id_}'.", advice="Give this one another id.")
                return Posted(id_, is_new=False)
            _write_whole(self._outbox, name, data)
        return Posted(id_, is_new=True)

    def send_once(self, type_: str, receiver: str, payload: Mapping[str, Any], name: str) -> Posted:
        """Send the one message of this name, unless it was sent; if it was refused, it may be sent again."""
        number, id_ = 1, name
        while (self._sent / f"{BAD}{_name(id_)}").exists():
            number += 1
            id_ = f"{name}-{number}"
        if (self._sent / _name(id_)).exists() or (self._outbox / _name(id_)).exists():
            return Posted(id_, is_new=False)
        return self.send(type_, receiver, payload, given_id=id_)

    def find_fate(self, id_: str) -> Fate:
        """Find what became of a message that was sent."""
        name = _name(id_)
        if (self._sent / name).exists():
            return Sent()
        if (self._sent / f"{BAD}{name}").exists():
            with _translate_os_errors():
                reason = (self._sent / f"{BAD}{name}.reason").read_text("utf-8", "replace")
                return Refused(reason.strip().rstrip("."))
        return Waiting()

    def wait_for_fate(self, id_: str, within_s: float = ANSWER_WITHIN_S) -> Fate:
        """Wait a moment until the hive has looked at a message."""
        for _ in range(round(within_s / _LOOK_EVERY_S)):
            if not isinstance(fate := self.find_fate(id_), Waiting):
                return fate
            time.sleep(_LOOK_EVERY_S)
        return self.find_fate(id_)

    def wait_for_answer(self, id_: str, key: str, within_s: float) -> Message | None:
        """Wait for the message whose payload names, under a key, the one that was sent; None if it does not come."""
        for _ in range(max(1, round(within_s / _LOOK_EVERY_S))):
            if found := next((each for each in self.list_inbox() if each.payload.get(key) == id_), None):
                return found
            time.sleep(_LOOK_EVERY_S)
        return None

    def _find_posted(self, name: str) -> bytes | None:
        for path in (self._outbox / name, self._sent / name, self._sent / f"{BAD}{name}"):
            with contextlib.suppress(FileNotFoundError):
                return path.read_bytes()
        return None

    # --- inbox ------------------------------------------------------------------------------------------------------

    def list_inbox(self) -> list[Message]:
        """List the messages that are not done, in the order in which they came."""
        with _translate_os_errors():
            names = sorted(name for name in os.listdir(self._inbox) if not name.startswith("."))  # noqa: PTH208 - names
        return [message for name in names if (message := self._load(self._inbox, name)) is not None]

    def count_new(self) -> int:
        """Count the messages that were not read."""
        return sum(message.is_new for message in self.list_inbox())

    def get(self, wanted: str) -> Message:
        """Get a message by its id, the end of its id, or the name of its file; also one that is done."""
        if (found := self.find(wanted)) is None:
            raise InputError(f"There is no message '{wanted}' in your inbox.", advice="To see what is: hive mail ls")
        return found

    def get_next(self) -> Message:
        """Get the oldest message that is new."""
        if (found := next((message for message in self.list_inbox() if message.is_new), None)) is None:
            raise InputError("There is no new message in your inbox.", advice="To see what was read: hive mail ls")
        return found

    def find(self, wanted: str) -> Message | None:
        """Find a message like `get`."""
        messages = self.list_inbox()
        with _translate_os_errors():
            done = sorted(os.listdir(self._done))  # noqa: PTH208 - names
        messages += [message for name in done if (message := self._load(self._done, name)) is not None]
        return next((each for each in messages if wanted in (each.id, each.name, each.id.rpartition("/")[2])), None)

    def mark_read(self, message: Message) -> None:
        """Note that a message was read, so it is not new any more."""
        with _translate_os_errors():
            self._read.mkdir(exist_ok=True)
            (self._read / message.name).touch()

    def acknowledge(self, message: Message) -> bool:
        """Move a message to `.done`, which tells the hive that it is dealt with; False when it is there already."""
        with _translate_os_errors():
            try:
                (self._inbox / message.name).rename(self._done / message.name)
            except FileNotFoundError:
                return False
        return True

    def _load(self, directory: Path, name: str) -> Message | None:
        """Read a message; None for what is none, or is gone."""
        try:
            said = json.loads((directory / name).read_bytes())
        except (OSError, ValueError, RecursionError):
            return None
        if not isinstance(said, dict) or not isinstance(payload := said.get("payload"), dict):
            return None
        id_, type_, sender, sent_at = (str(said.get(key) or "") for key in ("id", "type", "sender", "timestamp"))
        is_done, asks = directory == self._done, bool(said.get("expects_reply"))
        is_new = not is_done and not (self._read / name).exists()
        return Message(name, id_, type_, sender, sent_at, said.get("in_reply_to"), payload, is_new, asks, is_done)


def find_mailbox(environment: Mapping[str, str]) -> WorkerMailbox:
    """Find the mailbox of the worker that has this environment."""
    named = environment.get("HIVE_MAILBOX")
    if not named:
        what = "This is for workers, and there is no mailbox here: HIVE_MAILBOX is not set."
        raise InputError(what, advice="To write to a worker: hive mail send WORKER 'text'")
    if not (Path(named) / OUTBOX / SENT).is_dir():
        raise UnavailableError(f"There is no mailbox in {named}.", advice="HIVE_MAILBOX names it; do not change it.")
    return WorkerMailbox(Path(named))


def _name(id_: str) -> str:
    return f"{id_}.json"


def _write_whole(directory: Path, name: str, data: bytes) -> None:
    draft = directory / f".{name}.{secrets.token_hex(4)}"
    with draft.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    draft.rename(directory / name)


@contextlib.contextmanager
def _translate_os_errors() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UnavailableError(f"The mailbox cannot be used: {error.strerror or error}.") from error


def make_payload(text: str, fields: str) -> dict[str, Any]:
    """Make a payload of a text and of more fields, written as JSON."""
    try:
        more = json.loads(fields or "{}")
    except ValueError:
        more = None
    if not isinstance(more, dict):
        raise InputError("--payload is not a JSON object.", advice="""For example: --payload '{"files": 3}'""")
    return {**({"text": text} if text else {}), **more}
