"""Decides which agent gets a task, from facts that were checked: what landed, what was rejected, who stalled.

1. A task that names an agent gets that one.
2. Else an agent that is recommended for it.
3. Else, after its change was rejected, the agent that made it.
4. Else a free agent: one with the strengths that the task names, then one that knows the repository, then the one with
   the better record, then the one with fewer sessions. An agent with fewer than `MIN_TASKS` tasks has no record yet.
5. Else a new one.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from hivekeeper.domain.agent_rows import AgentRow
from hivekeeper.domain.wording import say_count

MIN_TASKS = 5
FAILURES_BEFORE_SENIOR = 3
TOPICS = ("patterns", "anti-patterns", "decisions")
MAX_LESSONS, MAX_LESSON = 200, 1000  # of an agent, and characters of one
MAX_ROLE, MAX_STRENGTHS = 500, 50
_Z = 1.96  # of a confidence of 95 %
NAME_PREFIX = "agent-"


@dataclass(frozen=True, slots=True)
class Record:
    """What became of an agent's attempts: each is counted once, and none that nobody can blame on it."""

    landed: int = 0
    rejected: int = 0
    stalled: int = 0
    failed: int = 0
    reworked: int = 0  # of those that landed: an earlier attempt of the same agent had not
    repos: Mapping[str, int] = field(default_factory=dict)  # what landed in each

    @property
    def tasks(self) -> int:
        """How many of its attempts say something about it."""
        return self.landed + self.rejected + self.stalled + self.failed

    @property
    def counts(self) -> bool:
        """Whether there are enough to judge it by."""
        return self.tasks >= MIN_TASKS

    @property
    def score(self) -> float:
        """The least share that lands, with 95 % confidence."""
        return find_lower_bound(self.landed, self.tasks)


@dataclass(frozen=True, slots=True)
class AgentFile:
    """What an agent's file says that a person may decide: role and strengths, or lessons by topic."""

    role: str = ""
    strengths: tuple[str, ...] = ()
    lessons: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def list_lessons(self, topic: str) -> tuple[str, ...]:
        """List the lessons of a topic."""
        return self.lessons.get(topic, ())


@dataclass(frozen=True, slots=True)
class Candidate:
    """An agent that may get a task."""

    row: AgentRow
    record: Record = Record()
    is_busy: bool = False


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a task asks of its agent.

    `named` is the plan's agent, `recommended` the one for another attempt, `author` the one whose change was rejected.
    """

    named: str | None = None
    recommended: str | None = None
    author: str | None = None
    strengths: Sequence[str] = ()
    repo: str | None = None


@dataclass(frozen=True, slots=True)
class Choice:
    """The agent that gets a task, why, and which of its sessions that is; it `is_new` if it does not exist yet."""

    agent: str
    why: str
    is_new: bool = False
    session: int = 1


def find_lower_bound(good: int, of: int) -> float:
    """Return the lower end of Wilson's interval for a share."""
    if not of:
        return 0.0
    share, spread = good / of, _Z * _Z / of
    centre = share + spread / 2
    return (centre - _Z * math.sqrt(share * (1 - share) / of + spread / of / 4)) / (1 + spread)


def choose_agent(wanted: Wanted, candidates: Mapping[str, Candidate]) -> Choice | None:
    """Choose the agent of a task; None if the only one that may have it is busy."""
    fixed = (
        (wanted.recommended, "recommended after earlier attempts failed"),
        (wanted.named, "the plan names it"),
    )
    for name, why in fixed:
        if name is not None:
            found = _resolve(name, candidates.values())
            if found is not None and found.is_busy:
                return None
            return _choose(found, why) if found else Choice(name, why, is_new=True)
    free = [each for each in candidates.values() if not each.is_busy and each.row.retired_at is None]
    if (author := next((each for each in free if each.row.name == wanted.author), None)) is not None:
        return _choose(author, "its change was rejected, so it continues")
    best = max(free, key=lambda each: _rank(wanted, each), default=None)
    if best is None or (wanted.strengths and not _match(wanted, best)):
        why = "every other agent is busy" if best is None else f"no free agent has the strength {wanted.strengths[0]}"
        return Choice(make_name(candidates), why, is_new=True)
    return _choose(best, _explain(wanted, best))


def _choose(candidate: Candidate, why: str) -> Choice:
    return Choice(candidate.row.name, why, session=candidate.row.sessions + 1)


def find_senior(candidates: Iterable[Candidate], failed: Collection[str]) -> str | None:
    """Find the agent with the best record that has not failed a task yet."""
    able = (each for each in candidates if each.record.counts and each.row.retired_at is None)
    left = [each for each in able if each.row.name not in failed]
    return max(left, key=lambda each: (each.record.score, each.record.landed, each.row.name)).row.name if left else None


def make_name(taken: Collection[str]) -> str:
    """Make a name for a new agent."""
    number = 1
    while f"{NAME_PREFIX}{number}" in taken:
        number += 1
    return f"{NAME_PREFIX}{number}"


def _resolve(name: str, candidates: Iterable[Candidate]) -> Candidate | None:
    """Find an agent by its name, or by one that it had before."""
    every = list(candidates)
    own = next((each for each in every if each.row.name == name), None)
    return own or next((each for each in every if name in each.row.list_former()), None)


def _match(wanted: Wanted, candidate: Candidate) -> int:
    return len({*wanted.strengths} & {*candidate.row.list_strengths()})


def _rank(wanted: Wanted, each: Candidate) -> tuple[int, bool, float, int, str]:
    knows_repo = bool(wanted.repo and each.record.repos.get(wanted.repo))
    score = each.record.score if each.record.counts else 0.0
    return _match(wanted, each), knows_repo, round(score, 2), -each.row.sessions, each.row.name


def _explain(wanted: Wanted, best: Candidate) -> str:
    reasons = []
    if matched := [name for name in wanted.strengths if name in best.row.list_strengths()]:
        reasons.append(f"it has the strength{'s' if matched[1:] else ''} {', '.join(matched)}")
    if wanted.repo and (landed := best.record.repos.get(wanted.repo)):
        reasons.append(f"it has landed {say_count(landed, 'change')} in {wanted.repo}")
    if best.record.counts:
        reasons.append(f"{best.record.landed} of its {say_count(best.record.tasks, 'attempt')} landed")
    return " and ".join(reasons) or "it was free"
