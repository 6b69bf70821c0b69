"""What follows from a look, for every state, look, boot and wish there is."""

from dataclasses import fields
from itertools import product

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from hivekeeper.domain.run import (
    Alive,
    Claim,
    Ended,
    Ending,
    Forbid,
    Gone,
    KillLeftovers,
    Look,
    NoteEnded,
    NoteLost,
    NoteStarted,
    Start,
    Stop,
    Unclaimed,
    Verdict,
    Wait,
    decide_run,
)
from hivekeeper.domain.states import RunState

CLAIM = Claim(12, 34, "boot", "2026-11-15T21:25:35.000000Z")
ENDING = Ending(0, "exit", 5, "2026-11-15T21:25:36.000000Z")
OPEN = (RunState.INTENDED, RunState.RUNNING)
INTENDED, RUNNING = OPEN
KILLED = "its wrapper was killed"
YES, NO = True, False

TABLE: list[tuple[RunState, Look, bool, bool, Verdict]] = [
    # state, look, intended in this boot, its end was asked for: what to do
    (INTENDED, Unclaimed(), YES, NO, Start()),
    (INTENDED, Unclaimed(), YES, YES, Forbid()),
    (INTENDED, Unclaimed(), NO, NO, NoteLost("the machine restarted before its start was known")),
    (INTENDED, Unclaimed(), NO, YES, NoteLost("the machine restarted before its start was known")),
    (RUNNING, Unclaimed(), YES, NO, NoteLost("its directory is gone")),
    (RUNNING, Unclaimed(), YES, YES, NoteLost("its directory is gone")),
    (RUNNING, Unclaimed(), NO, NO, NoteLost("its directory is gone")),
    (RUNNING, Unclaimed(), NO, YES, NoteLost("its directory is gone")),
    (INTENDED, Alive(CLAIM), YES, NO, NoteStarted(CLAIM)),
    (INTENDED, Alive(CLAIM), YES, YES, NoteStarted(CLAIM)),
    (INTENDED, Alive(CLAIM), NO, NO, NoteStarted(CLAIM)),
    (INTENDED, Alive(CLAIM), NO, YES, NoteStarted(CLAIM)),
    (RUNNING, Alive(CLAIM), YES, NO, Wait()),
    (RUNNING, Alive(CLAIM), YES, YES, Stop()),
    (RUNNING, Alive(CLAIM), NO, NO, Wait()),
    (RUNNING, Alive(CLAIM), NO, YES, Stop()),
    *((state, Ended(CLAIM, ENDING), here, kill, NoteEnded(CLAIM, ENDING))
      for state, here, kill in product(OPEN, (YES, NO), (YES, NO))),
    *((state, Gone(CLAIM), here, kill, NoteLost(KILLED))
      for state, here, kill in product(OPEN, (YES, NO), (YES, NO))),
    *((state, Gone(CLAIM, (5, 6)), here, kill, KillLeftovers((5, 6)))
      for state, here, kill in product(OPEN, (YES, NO), (YES, NO))),
    *((state, Gone(None, (), "it was cancelled"), here, kill, NoteLost("it was cancelled"))
      for state, here, kill in product(OPEN, (YES, NO), (YES, NO))),
    *((state, Gone(None, (7,)), here, kill, KillLeftovers((7,)))
      for state, here, kill in product(OPEN, (YES, NO), (YES, NO))),
]  # fmt: skip


@pytest.mark.parametrize(("state", "look", "here", "kill", "verdict"), TABLE)
def test_every_look_at_an_open_run_has_its_verdict(
    state: RunState, look: Look, *, here: bool, kill: bool, verdict: Verdict
) -> None:
    assert decide_run(state, look, intended_here=here, kill=kill) == verdict


def test_the_table_has_every_combination() -> None:
    seen = {(state, type(look), here, kill) for state, look, here, kill, _ in TABLE}
    assert seen == set(product(OPEN, (Unclaimed, Alive, Ended, Gone), (YES, NO), (YES, NO)))


claims = st.builds(
    Claim, st.integers(1), st.integers(0), st.sampled_from(["this-boot", "last-boot"]), st.just(CLAIM.at)
)
endings = st.builds(Ending, st.integers(-64, 255), st.text(), st.integers(0), st.just(ENDING.at), st.text())
pids = st.lists(st.integers(1)).map(tuple)
looks: st.SearchStrategy[Look] = st.one_of(
    st.just(Unclaimed()),
    st.builds(Alive, claims),
    st.builds(Ended, claims, endings),
    st.builds(Gone, st.none() | claims, pids, st.text()),
)


def may_have_run(state: RunState, look: Look, *, here: bool) -> bool:
    """Tell whether anybody may ever have started it: only a fresh intent of this boot without a claim says no."""
    return state is not RunState.INTENDED or not isinstance(look, Unclaimed) or not here


@given(state=st.sampled_from(RunState), look=looks, here=st.booleans(), kill=st.booleans())
@example(state=RunState.EXITED, look=Unclaimed(), here=True, kill=False)
@example(state=RunState.LOST, look=Unclaimed(), here=True, kill=False)
def test_a_run_that_may_have_run_is_never_started(state: RunState, look: Look, *, here: bool, kill: bool) -> None:
    verdict = decide_run(state, look, intended_here=here, kill=kill)
    assert not (isinstance(verdict, Start) and may_have_run(state, look, here=here))


@given(state=st.sampled_from(OPEN), look=looks, here=st.booleans())
def test_a_run_whose_end_was_asked_for_is_never_started_and_never_left_alone(
    state: RunState, look: Look, *, here: bool
) -> None:
    assert not isinstance(decide_run(state, look, intended_here=here, kill=True), Start | Wait)


@given(state=st.sampled_from(OPEN), look=looks, here=st.booleans(), kill=st.booleans())
def test_a_run_is_not_lost_while_something_of_it_is_known_to_live(
    state: RunState, look: Look, *, here: bool, kill: bool
) -> None:
    verdict = decide_run(state, look, intended_here=here, kill=kill)
    lives = isinstance(look, Alive) or (isinstance(look, Gone) and bool(look.leftovers))
    assert not (isinstance(verdict, NoteLost) and lives)
    assert isinstance(verdict, NoteEnded) == isinstance(look, Ended)


@given(look=looks, here=st.booleans(), kill=st.booleans())
def test_a_start_once_noted_is_never_noted_again(look: Look, *, here: bool, kill: bool) -> None:
    assert not isinstance(decide_run(RunState.RUNNING, look, intended_here=here, kill=kill), NoteStarted)


def test_a_note_says_why() -> None:
    for state, look, here, kill, _ in TABLE:
        verdict = decide_run(state, look, intended_here=here, kill=kill)
        assert not isinstance(verdict, NoteLost) or verdict.why
    assert [field.name for field in fields(Ending)] == ["status", "ended_by", "output_bytes", "at", "problem"]
