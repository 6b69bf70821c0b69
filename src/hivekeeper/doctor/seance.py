"""The index of what agents did: it is there, whole and up to date. All of it can be collected again."""

from collections.abc import Iterator

from hivekeeper.clock import to_seconds
from hivekeeper.doctor.facts import Facts
from hivekeeper.doctor.findings import REPAIR, Check, Finding, RebuildIndex, Say, ok, or_ok, warn
from hivekeeper.errors import UnavailableError
from hivekeeper.runs.local import LocalOutputs
from hivekeeper.seance.asking import find_pending
from hivekeeper.seance.collecting import Sources, collect
from hivekeeper.settings import Settings
from hivekeeper.store.excerpts import ExcerptIndex
from hivekeeper.store.sqlite import reading_only

BEHIND_AFTER_S = 60.0  # a keeper collects what a session left within seconds


def check_seance(facts: Facts, settings: Settings, say: Say = lambda _what: None) -> Iterator[Finding]:
    """Check the index, if the settings ask for one."""
    if not settings.identity:
        yield ok(Check.SEANCE, "nothing is collected ([patterns] identity in hive.toml)")
        return
    say("what agents did")
    yield from or_ok(_check(facts), Check.SEANCE, "what agents did is collected")


def _check(facts: Facts) -> Iterator[Finding]:
    path = facts.places.seance
    after = 0
    if path.exists():
        try:
            with ExcerptIndex(path, read_only=True) as index:
                problem, after = index.find_problem(), index.find_progress()
        except UnavailableError as error:
            problem = str(error)
        if problem or after > facts.records.head.seq:
            yield _warn(facts, "is damaged" if problem else "is of another ledger", is_new=True)
            return
    with reading_only(facts.places.ledger) as connection:
        pending = find_pending(connection, after)
    if pending is not None and facts.now_s - to_seconds(pending.recorded_at) > BEHIND_AFTER_S:
        yield _warn(facts, f"is not collected since event {pending.seq}" if after else "is missing", is_new=False)


def _warn(facts: Facts, what: str, *, is_new: bool) -> Finding:
    sentence = f"The index of what agents did, {facts.places.seance}, {what}."
    if facts.records.keeper is not None:
        return warn(Check.SEANCE, sentence, "Type: hive down; hive doctor --fix; hive up --detach")
    return warn(Check.SEANCE, sentence, REPAIR, RebuildIndex(is_new=is_new))


def rebuild_index(facts: Facts, settings: Settings, *, is_new: bool) -> str:
    """Collect what is missing; all of it if the index is damaged."""
    places = facts.places
    sources = Sources(lambda: reading_only(places.ledger), places, LocalOutputs(places.runs), settings.runners)
    with ExcerptIndex(places.seance) as index:
        if is_new:
            index.make_again()
        count = sum(collected for _, collected in collect(sources, lambda: index, index.find_progress()))
    return f"Collected what agents did in {count} attempt{'s' if count != 1 else ''} in {places.seance}."
