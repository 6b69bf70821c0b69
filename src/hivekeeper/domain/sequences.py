"""Every sequence of runs in the hive, as data: `domain/steps.py` decides what comes next in each.

Who adds a sequence adds it here, with a function that says what each of its runs is (`specs`), and a loop that calls
`decide` and carries out the answer.
"""

from hivekeeper.domain.rows import RepoRow, TaskRow
from hivekeeper.domain.steps import FREE, THRICE, End, Retry, Step, StepSequence
from hivekeeper.domain.waits import FIRST_FETCH_S, FIRST_PUBLISH_S, LONGEST_FETCH_S, LONGEST_PUBLISH_S

NOT_AS_PROMISED = 3  # a snapshot that went well, and what was promised is not there
UNUSABLE = 65  # a fetch that read the repository and can never use it as it is


_TWICE_REFUSED = {**THRICE, End.REFUSED: Retry(2)}
_NEW_TRY = {End.BROKEN: Retry(), End.LOST: Retry(), End.STALE: FREE}

# A worker's attempt. Whatever became of the agent, what it made is kept, and then evidence decides.
WORK = StepSequence(
    (
        Step("sandbox", fleeting=True),
        Step("setup", answers=None, fleeting=True),
        Step("stash", fleeting=True),
        Step("agent", again={}, answers=None, goes_on=True, guarded=True),
        Step("snapshot", answers=frozenset({NOT_AS_PROMISED}), goes_on=True, keeps=True),
        Step("backup", goes_on=True, keeps=True),
    ),
    parks=True,
)
# The tree of a candidate. A try is one pass in one check-out; what a command of the person's says stands.
GATE = StepSequence(
    (
        Step("checkout", _NEW_TRY, fleeting=True, from_start=True),
        Step("setup", _NEW_TRY, answers=None, fleeting=True, from_start=True),
        Step("stash", _NEW_TRY, fleeting=True, from_start=True),
        Step("gate", _NEW_TRY, answers=None, from_start=True),
    )
)
# A conflict that no rule settles. Whoever settles it is asked twice; trouble of our own is repeated apart from that.
SETTLE = StepSequence(
    (
        Step("conflict", fleeting=True, from_start=True),
        Step("resolve", _TWICE_REFUSED, answers=None, fleeting=True, from_start=True, guarded=True),
        Step("settle", _TWICE_REFUSED, from_start=True),
    )
)
# A failed landing is a new round of its entry.
LAND = StepSequence((Step("land", again={}),))
# A convoy as a whole. A sweep that fails is left to the doctor: the verdict does not wait for it.
ACCEPT = StepSequence(
    (
        Step("trees", fleeting=True, from_start=True),
        Step("accept", answers=None, from_start=True, goes_on=True),
        Step("sweep", again={}, goes_on=True),
    )
)
FETCH = StepSequence(
    (
        Step(
            "fetch",
            {End.BROKEN: Retry(None, FIRST_FETCH_S, LONGEST_FETCH_S), End.REFUSED: Retry(), End.LOST: FREE},
            answers=frozenset({UNUSABLE}),
        ),
    )
)
PUBLISH = StepSequence(
    (Step("publish", {End.BROKEN: Retry(None, FIRST_PUBLISH_S, LONGEST_PUBLISH_S), End.LOST: FREE}),)
)


def choose_work(task: TaskRow, repo: RepoRow | None, start: str | None) -> StepSequence:
    """Choose the steps of an attempt, which goes on from a commit or from what has landed."""
    if not task.has_sandbox:
        return WORK.without(("sandbox", "setup", "stash", "snapshot", "backup"))
    if repo is None:
        return WORK.without(("setup", "stash", "backup"))
    return WORK.without(
        (
            *(() if repo.setup else ("setup",)),
            # What a predecessor's tree makes of a setup is not for others.
            *(() if repo.setup and repo.keep and start is None else ("stash",)),
            *(() if repo.backup else ("backup",)),
        )
    )


def choose_gate(repo: RepoRow) -> StepSequence:
    """Choose the steps that verify a tree."""
    left_out = (*(() if repo.setup else ("setup",)), *(() if repo.setup and repo.keep else ("stash",)))
    return GATE.without(left_out)


def make_sweep(wait_s: float) -> StepSequence:
    """Make the sequence that removes a sandbox: one that failed is tried again after a while."""
    return StepSequence((Step("remove", {End.LOST: FREE, End.BROKEN: Retry(None, wait_s, wait_s)}),))
