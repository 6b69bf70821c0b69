"""The judge of histories: each kind of wrong it must find, and none where there is none."""

from dataclasses import replace

from hivekeeper.domain import events as e
from hivekeeper.domain.gate import Gate
from hivekeeper.domain.owners import tree_owner
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.schema import get_table
from hivekeeper.testing.history import Fault, History, Landed, check_history

KEEPER, PERSON = "keeper 1", "ann"
LIMITS = {"wall_s": None}


def tell(*bodies: e.Body) -> list[e.Event]:
    """Put bodies into envelopes, a second apart, the keeper's and the person's."""
    events = []
    for seq, body in enumerate((e.LeaseTaken(KEEPER, 1, 1, 1, "boot", ""), *bodies), start=1):
        who = PERSON if type(body) in e.REQUESTS else KEEPER
        at = f"2026-11-15T21:25:{seq:02}.000000Z"
        events.append(e.Event(seq, body, who, "", at, at, 1, "hash"))
    return events


def add(name: str, *after: str, repo: str | None = None) -> e.TaskAdded:
    return e.TaskAdded(
        f"c/{name}", "c", name, "", "true", repo, list(after), None, 0, 3, None, idempotent=False, limits=LIMITS
    )


def begin(name: str, attempt: int = 1) -> tuple[e.Body, ...]:
    run = f"c/{name}.{attempt}.agent"
    return (
        e.TaskDispatched(f"c/{name}", "c", attempt, 1, 1, sandbox=False),
        e.RunIntended(run, "agent", f"c/{name}", attempt, None, ["true"], "/", {}, {}, "boot"),
        e.RunStarted(run, 1, 1, "boot"),
        e.RunExited(run, "agent", 0, "exit", 0),
    )


DONE = (e.ConvoySubmitted("c", "p"), add("a"), *begin("a"), e.TaskCompleted("c/a", 1, None, None))
GOOD = History(tell(*DONE), begun={("c/a", 1): 1}, acknowledged=["submitted c", "complete c/a"])


def faults(history: History) -> list[Fault]:
    return [violation.fault for violation in check_history(history)]


def test_a_right_history_is_left_alone() -> None:
    assert check_history(GOOD) == []


def test_an_acknowledged_submission_that_the_ledger_forgot_is_lost() -> None:
    assert faults(replace(GOOD, acknowledged=["submitted other"])) == [Fault.LOST]


def test_an_acknowledged_completion_that_the_ledger_forgot_is_lost() -> None:
    assert faults(replace(GOOD, events=GOOD.events[:-1])) == [Fault.LOST]


def test_a_gap_in_the_log_is_lost() -> None:
    assert Fault.LOST in faults(replace(GOOD, events=[*GOOD.events[:3], *GOOD.events[4:]]))


def test_an_agent_that_began_twice_is_doubled() -> None:
    assert faults(replace(GOOD, begun={("c/a", 1): 2})) == [Fault.DOUBLED]


def test_an_agent_nobody_meant_to_begin_is_unexpected() -> None:
    assert faults(replace(GOOD, begun={("c/a", 1): 1, ("c/b", 1): 1})) == [Fault.UNEXPECTED]


def test_a_completion_without_a_beginning_is_unexpected() -> None:
    assert faults(replace(GOOD, begun={("c/x", 1): 0, ("c/y", 1): 0})) == [Fault.UNEXPECTED] * 3


def test_a_run_that_began_before_its_intent_is_unexpected_unless_an_older_ledger_was_put_back() -> None:
    events = [
        replace(event, occurred_at="2026-11-15T21:25:00.000000Z") if isinstance(event.body, e.RunStarted) else event
        for event in GOOD.events
    ]
    assert faults(replace(GOOD, events=events)) == [Fault.UNEXPECTED]
    assert faults(replace(GOOD, events=events, restored=True)) == []


def test_a_dispatch_after_the_end_is_doubled() -> None:
    assert Fault.DOUBLED in faults(replace(GOOD, events=tell(*DONE, *begin("a", 2)), begun={("c/a", 1): 1}))


def test_two_attempts_at_once_are_doubled() -> None:
    bodies = (e.ConvoySubmitted("c", "p"), add("a"), *begin("a"), *begin("a", 2))
    assert Fault.DOUBLED in faults(History(tell(*bodies)))


def test_a_dispatch_before_its_predecessor_is_out_of_order() -> None:
    bodies = (e.ConvoySubmitted("c", "p"), add("a"), add("b", "c/a"), *begin("b"))
    assert Fault.OUT_OF_ORDER in faults(History(tell(*bodies)))


def test_a_write_without_the_lease_is_unexpected() -> None:
    released = tell(*DONE[:2], e.LeaseReleased(KEEPER), *DONE[2:])
    assert set(faults(replace(GOOD, events=released))) == {Fault.UNEXPECTED}


VERIFYING = e.MergeVerifying("c/a", 1, 1, "base", "commit", "tree")
WANTED = e.RepoWanted("r", "/r", "main", "make", 1)


def name_gate(tree: str, verify: str = "make") -> str:
    """Name the run in which a tree is verified by a gate, as the merger does."""
    empty = dict.fromkeys(get_table(RepoRow).columns) | {
        "name": "r",
        "verify": verify,
        "details": "{}",
        "resumptions": 0,
    }
    return tree_owner(Gate(RepoRow(**empty)), tree).name  # type: ignore[arg-type]


GATE = f"_gates/{name_gate('tree')}.1.1.gate"
LANDED = (
    e.ConvoySubmitted("c", "p"),
    WANTED,
    add("a", repo="r"),
    *begin("a"),
    VERIFYING,
    e.RunIntended(GATE, "gate", None, None, "r", ["true"], "/", {}, {}, "boot", owner=name_gate("tree")),
    e.RunStarted(GATE, 1, 1, "boot"),
    e.RunExited(GATE, "gate", 0, "exit", 0),
    e.MergeLanding("c/a", 1),
    e.MergeLanded("c/a", 1, "r", "commit"),
    e.TaskCompleted("c/a", 1, "commit", None),
)
ON_BRANCH = Landed("c/a", 1, "commit", "tree")


def test_what_landed_once_after_its_own_gate_is_left_alone() -> None:
    assert faults(History(tell(*LANDED), landed=[ON_BRANCH])) == []


def test_a_completed_task_that_is_not_on_the_branch_is_lost() -> None:
    assert faults(History(tell(*LANDED))) == [Fault.LOST]


def test_a_task_without_a_commit_of_its_own_needs_one_that_holds_what_it_changed() -> None:
    added_nothing = [replace(b, base="commit") if isinstance(b, e.MergeVerifying) else b for b in LANDED]
    assert faults(History(tell(*added_nothing), held=frozenset({(("c/a", 1), "commit")}))) == []
    assert faults(History(tell(*added_nothing))) == [Fault.LOST]
    assert faults(History(tell(*added_nothing), landed=[ON_BRANCH])) == [Fault.LOST, Fault.UNEXPECTED]


def test_a_task_that_is_twice_on_the_branch_is_doubled() -> None:
    assert Fault.DOUBLED in faults(History(tell(*LANDED), landed=[ON_BRANCH, ON_BRANCH]))


def test_a_commit_whose_tree_nobody_verified_is_unexpected() -> None:
    assert faults(History(tell(*LANDED), landed=[replace(ON_BRANCH, tree="other")])) == [Fault.UNEXPECTED]
    failed = [replace(b, status=1) if isinstance(b, e.RunExited) and b.run_kind == "gate" else b for b in LANDED]
    assert faults(History(tell(*failed), landed=[ON_BRANCH])) == [Fault.UNEXPECTED]


def test_what_passed_another_gate_or_as_another_tree_is_unexpected() -> None:
    for other in (name_gate("other"), name_gate("tree", "true")):
        moved = [replace(b, owner=other) if isinstance(b, e.RunIntended) and b.run == GATE else b for b in LANDED]
        assert faults(History(tell(*moved), landed=[ON_BRANCH])) == [Fault.UNEXPECTED]


def test_what_passed_only_after_it_was_to_land_is_unexpected() -> None:
    gate = [b for b in LANDED if getattr(b, "run", None) == GATE]
    late = [*(b for b in LANDED if b not in gate), *gate]
    assert faults(History(tell(*late), landed=[ON_BRANCH])) == [Fault.UNEXPECTED]


def test_what_passed_before_a_person_had_the_queue_go_on_is_unexpected() -> None:
    landing = LANDED.index(e.MergeLanding("c/a", 1))
    resumed = [*LANDED[:landing], e.RepoPaused("r"), e.RepoResumed("r"), *LANDED[landing:]]
    assert faults(History(tell(*resumed), landed=[ON_BRANCH])) == [Fault.UNEXPECTED]


def test_a_commit_that_came_along_with_one_that_landed_is_unexpected() -> None:
    along = Landed("c/b", 1, "before", "tree of before")
    found = faults(History(tell(*LANDED), landed=[along, ON_BRANCH]))
    assert found == [Fault.UNEXPECTED, Fault.UNEXPECTED]


def test_a_commit_the_ledger_does_not_know_of_is_unexpected() -> None:
    assert Fault.UNEXPECTED in faults(History(tell(*LANDED[:-1]), landed=[ON_BRANCH]))


def test_a_landing_without_the_gate_that_was_defined_is_unexpected() -> None:
    skipped = [b for b in LANDED if getattr(b, "run", None) != GATE]
    assert faults(History(tell(*skipped), landed=[ON_BRANCH])) == [Fault.UNEXPECTED]
    undefined = [replace(b, verify=None) if isinstance(b, e.RepoWanted) else b for b in skipped]
    assert faults(History(tell(*undefined), landed=[ON_BRANCH])) == []


def test_a_sandbox_that_is_gone_with_nothing_kept_is_lost() -> None:
    swept = tell(
        *(replace(b, repo="r") if isinstance(b, e.RunIntended) else b for b in LANDED), e.AttemptSwept("c/a", 1)
    )
    assert faults(History(swept, landed=[ON_BRANCH])) == [Fault.LOST]
    assert faults(History(swept, landed=[ON_BRANCH], kept=frozenset({("c/a", 1)}))) == []


def test_a_publication_that_the_persons_repository_does_not_have_is_lost() -> None:
    published = tell(*LANDED, e.RepoPublished("r", "commit"))
    assert faults(History(published, landed=[ON_BRANCH], published={"r": "commit"})) == []
    assert faults(History(published, landed=[ON_BRANCH], published={"r": ""})) == [Fault.LOST]


def test_a_wish_that_was_acknowledged_and_forgotten_is_lost() -> None:
    assert faults(replace(GOOD, acknowledged=["asked c/a"])) == [Fault.LOST]
