"""Every sequence of runs in the hive, as data: `domain/steps.py` decides what comes next in each.

Who adds a sequence adds it here, with a function that says what each of its runs is (`specs`), and a loop that calls
`decide` and carries out the answer.
"""

from hivekeeper.domain.rows import RepoRow, TaskRow
from hivekeeper.domain.steps import DEFAULT_RETRIES, UNLIMITED, End, Retry, Step, StepSequence
from hivekeeper.domain.waits import FIRST_FETCH_WAIT_S, FIRST_PUBLISH_WAIT_S, MAX_FETCH_WAIT_S, MAX_PUBLISH_WAIT_S

OUTPUTS_MISSING = 3  # a snapshot that went well, and what was promised is not there
REPO_UNUSABLE = 65  # a fetch that read the repository and can never use it as it is


_RESOLVE_RETRIES = {**DEFAULT_RETRIES, End.REJECTED: Retry(2)}
_GATE_RETRIES = {End.ERROR: Retry(), End.LOST: Retry(), End.STALE: UNLIMITED}

# A worker's attempt. Whatever became of the agent, what it made is kept, and then evidence decides.
WORK = StepSequence(
    (
        Step("sandbox", ephemeral=True),
        Step("setup", verdict_codes=None, ephemeral=True),
        Step("stash", ephemeral=True),
        Step("agent", retries={}, verdict_codes=None, continues_on_error=True, needs_admission=True),
        Step("snapshot", verdict_codes=frozenset({OUTPUTS_MISSING}), continues_on_error=True, runs_when_cancelled=True),
        Step("backup", continues_on_error=True, runs_when_cancelled=True),
    ),
    parks=True,
)
# The tree of a candidate. A try is one pass in one check-out; what a command of the person's says stands.
GATE = StepSequence(
    (
        Step("checkout", _GATE_RETRIES, ephemeral=True, restarts=True),
        Step("setup", _GATE_RETRIES, verdict_codes=None, ephemeral=True, restarts=True),
        Step("stash", _GATE_RETRIES, ephemeral=True, restarts=True),
        Step("gate", _GATE_RETRIES, verdict_codes=None, restarts=True),
    )
)
# A conflict that no rule settles. Whoever settles it is asked twice; trouble of our own is repeated apart from that.
RESOLVE = StepSequence(
    (
        Step("conflict", ephemeral=True, restarts=True),
        Step("resolve", _RESOLVE_RETRIES, verdict_codes=None, ephemeral=True, restarts=True, needs_admission=True),
        Step("settle", _RESOLVE_RETRIES, restarts=True),
    )
)
# A failed landing is a new round of its entry.
LAND = StepSequence((Step("land", retries={}),))
# A convoy as a whole. A sweep that fails is left to the doctor: the verdict does not wait for it.
ACCEPT = StepSequence(
    (
        Step("trees", ephemeral=True, restarts=True),
        Step("accept", verdict_codes=None, restarts=True, continues_on_error=True),
        Step("sweep", retries={}, continues_on_error=True),
    )
)
FETCH = StepSequence(
    (
        Step(
            "fetch",
            {End.ERROR: Retry(None, FIRST_FETCH_WAIT_S, MAX_FETCH_WAIT_S), End.REJECTED: Retry(), End.LOST: UNLIMITED},
            verdict_codes=frozenset({REPO_UNUSABLE}),
        ),
    )
)
PUBLISH = StepSequence(
    (Step("publish", {End.ERROR: Retry(None, FIRST_PUBLISH_WAIT_S, MAX_PUBLISH_WAIT_S), End.LOST: UNLIMITED}),)
)


def attempt_sequence(task: TaskRow, repo: RepoRow | None, start: str | None) -> StepSequence:
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


def gate_sequence(repo: RepoRow) -> StepSequence:
    """Choose the steps that verify a tree."""
    left_out = (*(() if repo.setup else ("setup",)), *(() if repo.setup and repo.keep else ("stash",)))
    return GATE.without(left_out)


def removal_sequence(wait_s: float) -> StepSequence:
    """Make the sequence that removes a sandbox: one that failed is tried retries after a while."""
    return StepSequence((Step("remove", {End.LOST: UNLIMITED, End.ERROR: Retry(None, wait_s, wait_s)}),))
