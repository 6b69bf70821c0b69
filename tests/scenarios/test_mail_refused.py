"""Messages that reach nobody: a person throws them away, there are too many, or whoever they are for has ended."""

from pathlib import Path

from hivekeeper.commands.mail import drop_mail
from hivekeeper.domain.states import MailState
from hivekeeper.views.mail import list_mail_needs
from tests.mailbox.post import Post, open_post
from tests.stage import ME


def needs(post: Post) -> list[tuple[str, str]]:
    with post.ledger.read() as connection:
        return list(list_mail_needs(connection, 1800.0, now=post.clock.now()))


def test_what_a_person_drops_from_the_quarantine_needs_nobody_and_is_delivered_to_nobody(tmp_path: Path) -> None:
    with open_post(tmp_path / "hive", "a", "b") as post:
        (post.outbox("a") / "half.json").write_text('{"type": "inform", "to": "b", ')
        post.carry()
        post.clock.let_pass(2.1)
        post.carry()
        (half,) = post.rows()
        assert half.state is MailState.QUARANTINED
        assert needs(post) == [("Messages from a could not be read.", "hive mail quarantine ls")]
        for is_first in (True, False):
            with post.ledger.write(ME) as tx:
                assert drop_mail(tx, half, "noise") == is_first
        post.carry()
        (half,) = post.rows()
        assert (half.state, half.reason, half.ended_by) == (MailState.DROPPED, "noise", ME.who)
        assert needs(post) == []
        assert post.read("b") == []
