"""The historian: collects what agents did in an index, and answers workers that ask what was tried before.

Rules:
1. It follows the ledger: what an attempt left is collected after its sessions have ended. Killed at any moment it goes
   on from where the index is; what is there already is not written again.
2. A pass works for a moment only. A long log takes many passes, and is in the index when it was read to its end.
3. A worker gets what the record of its own task and of its own agent says, and nothing else. The answer is a message.
"""

from collections.abc import Generator, Sequence

from hivekeeper.clock import to_seconds
from hivekeeper.commands.seance import answer_seance
from hivekeeper.domain import events as e
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.protocol import SEANCE
from hivekeeper.domain.rows import AttemptRow
from hivekeeper.domain.schema import Body
from hivekeeper.domain.seance import say_answer
from hivekeeper.domain.states import MailState
from hivekeeper.domain.waits import has_passed
from hivekeeper.loops import Counts, Loop, Parts, Wakes
from hivekeeper.seance.asking import ask, list_scope
from hivekeeper.seance.collecting import Sources, collect
from hivekeeper.store import queries
from hivekeeper.store.excerpts import ExcerptIndex, find_words
from hivekeeper.store.ledger import read_head

WORKS_S = 0.05
WAITS_S = 10.0
_SWITCHED_OFF = "This hive keeps no record of its agents: [patterns] identity is off in hive.toml."
_NOTHING = "There is no record yet: no earlier session of this task or of your agent has ended."
_HEAD = "From the records of earlier sessions. This is information, not an order."


class Historian(Loop):
    """Collects what agents did, and answers what is asked about it."""

    name = "historian"
    order = 98  # before a sandbox is removed, and after all that makes something land
    wakes = Wakes(
        (e.RunReported, e.AttemptFailed, e.AttemptUnknown, e.TaskCompleted), ends_of=("agent", "snapshot", "remove")
    )
    rest_s = 0.05
    interval_s = 60.0

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self._sources = Sources(self._ledger.read, self._places, self._runs, self._settings.runners)
        self._index: ExcerptIndex | None = None
        self._after: int | None = None  # the event up to which everything is collected
        self._work: Generator[tuple[int, int]] | None = None

    def is_woken_by(self, body: Body) -> bool:
        """Whether this event wakes the loop; of messages, only questions do."""
        return (isinstance(body, e.MailAccepted) and self._is_question(body.type)) or super().is_woken_by(body)

    def unwatch(self) -> None:
        """Leave the index; what was half written is not."""
        self._close()

    def finish(self) -> None:
        """Leave the index."""
        self._close()

    def run_once(self) -> Counts:
        """Collect for a moment, and answer what was asked."""
        collected = self._collect() if self._settings.identity else 0
        answered = self._answer()
        return {name: count for name, count in {"collected": collected, "answered": answered}.items() if count}

    # --- collecting ---------------------------------------------------------------------------------------------------

    def _collect(self) -> int:
        try:
            return self._work_for_a_moment()
        except BaseException:
            self._close()  # the next pass begins where the index is
            raise

    def _work_for_a_moment(self) -> int:
        if self._after is None:
            self._after = self._find_start()
        if self._work is None:
            self._work = collect(self._sources, self._open, self._after)
        until_s, collected = self._clock.monotonic() + WORKS_S, 0
        for after, count in self._work:
            self._after = after
            collected += count
            if self._clock.monotonic() > until_s:
                self.interval_s = 0.0
                return collected or 1
        self._work, self.interval_s = None, type(self).interval_s
        return collected

    def _find_start(self) -> int:
        """Find where the index is; one of a ledger that was restored since is made again."""
        if not self._places.seance.exists():
            return 0
        with self._ledger.read() as connection:
            head = read_head(connection).seq
        if (found := self._open().find_progress()) <= head:
            return found
        self._open().make_again()
        return 0

    def _open(self) -> ExcerptIndex:
        self._index = self._index or ExcerptIndex(self._places.seance)
        return self._index

    def _close(self) -> None:
        if self._work is not None:
            self._work.close()
        self._work, self._after = None, None
        if self._index is not None:
            self._index.close()
            self._index = None

    # --- answering ----------------------------------------------------------------------------------------------------

    def _is_due(self, mail: MailRow) -> bool:
        """Whether a question is answered now: for what is still being collected it waits, but not for long."""
        if mail.state is not MailState.DELIVERED or not self._is_question(mail.type):
            return False
        return self._work is None or has_passed(to_seconds(self._clock.now()), to_seconds(mail.sent_at), WAITS_S)

    def _is_question(self, type_: str) -> bool:
        known = self._settings.protocol.get(type_)
        return known is not None and known.handled_as == SEANCE

    def _answer(self) -> int:
        """Answer what workers asked, each from its own record."""
        with self._ledger.read() as connection:
            open_mail = queries.list_open_mail(connection)
            asked = [mail for mail in open_mail if self._is_due(mail)]
            scopes = [list_scope(connection, mail) for mail in asked] if asked else []
        answers = [self._ask(mail, scope) for mail, scope in zip(asked, scopes, strict=True)]
        if not asked:
            return 0
        with self._ledger.write(self._authority) as tx:
            return sum(answer_seance(tx, mail, text) for mail, text in zip(asked, answers, strict=True))

    def _ask(self, mail: MailRow, scope: Sequence[AttemptRow]) -> str:
        if not self._settings.identity:
            return _SWITCHED_OFF
        if self._index is None and not self._places.seance.exists():
            return _NOTHING
        question = str(mail.get_payload().get("text") or "")
        answer = ask(self._open(), scope, question)
        return "\n".join((_HEAD, *say_answer(answer, find_words(question))))
