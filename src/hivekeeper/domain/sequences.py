"""Every sequence of runs in the hive, as data; `domain/steps.py` decides what comes next in each.

To add a sequence, declare it here, add a function to `specs` that specifies its runs, and a loop that calls `decide`
and acts on the answer.
"""

from hivekeeper.domain.rows import RepoRow, TaskRow
from hivekeeper.domain.steps import DEFAULT_RETRIES, UNLIMITED, End, Retry, Step, StepSequence
from hivekeeper.domain.waits import FIRST_FETCH_WAIT_S, FIRST_PUBLISH_WAIT_S, MAX_FETCH_WAIT_S, MAX_PUBLISH_WAIT_S

OUTPUTS_MISSING = 3  # a snapshot was taken, but promised outputs are missing
REPO_UNUSABLE = 65  # a fetch read the repository, and it cannot be used as it is


def _retry_for_ever(first_wait_s: float, max_wait_s: float) -> dict[End, Retry]:
    """Retry any number of times; a run that was killed is retried at once, but not if that happens again."""
    return {
        End.ERROR: Retry(None, first_wait_s, max_wait_s),
        End.LOST: Retry(None, first_wait_s, max_wait_s, immediate=1),
    }


_RESOLVE_RETRIES = {**DEFAULT_RETRIES, End.REJECTED: Retry(2)}
_GATE_RETRIES = {End.ERROR: Retry(), End.LOST: Retry(), End.STALE: UNLIMITED}

# A worker's attempt. The agent's work is saved however the agent ended; then evidence decides.
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
# Verifies the tree of a candidate. A try runs in one checkout; the verdict of a user's command is final.
GATE = StepSequence(
    (
        Step("checkout", _GATE_RETRIES, ephemeral=True, restarts=True),
        Step("setup", _GATE_RETRIES, verdict_codes=None, ephemeral=True, restarts=True),
        Step("stash", _GATE_RETRIES, ephemeral=True, restarts=True),
        Step("gate", _GATE_RETRIES, verdict_codes=None, restarts=True),
    )
)
# Resolves a conflict that no rule can. The resolver is asked twice; errors are retried separately.
RESOLVE = StepSequence(
    (
        Step("conflict", ephemeral=True, restarts=True),
        Step("resolve", _RESOLVE_RETRIES, verdict_codes=None, ephemeral=True, restarts=True, needs_admission=True),
        Step("settle", _RESOLVE_RETRIES, restarts=True),
    )
)
# A failed landing is a new round of its entry.
LAND = StepSequence((Step("land", retries={}),))
# Accepts a convoy as a whole. The verdict does not wait for a failed sweep: that is left to the doctor.
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
            {**_retry_for_ever(FIRST_FETCH_WAIT_S, MAX_FETCH_WAIT_S), End.REJECTED: Retry()},
            verdict_codes=frozenset({REPO_UNUSABLE}),
        ),
    )
)
PUBLISH = StepSequence((Step("publish", _retry_for_ever(FIRST_PUBLISH_WAIT_S, MAX_PUBLISH_WAIT_S)),))


def attempt_sequence(task: TaskRow, repo: RepoRow | None, start: str | None) -> StepSequence:
    """Return the sequence of an attempt that starts from commit `start`, or else from what has landed."""
    if not task.has_sandbox:
        return WORK.without(("sandbox", "setup", "stash", "snapshot", "backup"))
    if repo is None:
        return WORK.without(("setup", "stash", "backup"))
    return WORK.without(
        (
            *(() if repo.setup else ("setup",)),
            # A setup on top of a predecessor's work must not become the cache for others.
            *(() if repo.setup and repo.keep and start is None else ("stash",)),
            *(() if repo.backup else ("backup",)),
        )
    )


def gate_sequence(repo: RepoRow) -> StepSequence:
    """Return the sequence that verifies a tree."""
    left_out = (*(() if repo.setup else ("setup",)), *(() if repo.setup and repo.keep else ("stash",)))
    return GATE.without(left_out)


def removal_sequence(wait_s: float) -> StepSequence:
    """Return the sequence that removes a sandbox; a failed removal is retried after `wait_s`."""
    return StepSequence((Step("remove", _retry_for_ever(wait_s, wait_s)),))
