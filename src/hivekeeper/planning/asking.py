"""Which runner makes a plan, and the asking: what does not fit is asked for once more, with what is wrong with it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hivekeeper.config.schemas import make_answer_schema
from hivekeeper.domain import budget as b
from hivekeeper.domain.admission import Held, Need, may_start
from hivekeeper.domain.issues import Issue
from hivekeeper.domain.report import LIMITED, Outcome, Usage
from hivekeeper.domain.runner import Runner
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError, UnavailableError
from hivekeeper.hive import Hive
from hivekeeper.keeper.programs import find_hive_isolation, find_problem, refuse_weak_isolation
from hivekeeper.keeper.trials import Said, Trial, open_trial
from hivekeeper.planning.drafting import Desk, Draft, Refused
from hivekeeper.runners.answers import Answer, Question, Unfit
from hivekeeper.runs.wrapper import read_boot_id
from hivekeeper.specs.planner import MAX_ISSUES, Shown, describe_goal, describe_problems
from hivekeeper.store import queries
from hivekeeper.views.holds import say_hold
from hivekeeper.views.runners import find_sign_in

MAX_TASKS = 200
MAX_ANSWER = 256 << 10
_NOTHING = "Nothing was written."

Tell = Callable[[str], object]


@dataclass(frozen=True, slots=True)
class Wish:
    """What a person wants, and for how long at most they wait for the plan."""

    goal: str
    issues: Sequence[Issue]
    at_most_s: float


def choose_runner(hive: Hive, name: str) -> Runner:
    """Choose the runner that is named, or the first that is installed and signed in; refuse one that cannot start."""
    runners = hive.settings.runners
    if name:
        hive.settings.check_runner(name)
        if name not in runners:
            raise InputError(f"The runner '{name}' is no agent program.", advice="Type: hive runner ls")
        if problem := find_problem(runners[name], find_hive_isolation(hive, read_boot_id())):
            raise UnavailableError(f"{problem[:1].upper()}{problem[1:]}.", advice=_NOTHING)
        return runners[name]
    isolation = find_hive_isolation(hive, read_boot_id())
    for runner in runners.values():
        is_signed_in = bool(find_sign_in(runner)) or not (runner.sign_in or runner.inherit)
        if is_signed_in and find_problem(runner, isolation) is None:
            return runner
    raise UnavailableError("No agent program is installed and signed in.", advice="To see them: hive runner ls")


def ask_for_plan(desk: Desk, runner: Runner, wish: Wish, tell: Tell) -> tuple[Draft, Usage]:
    """Have a runner make a plan, and tell what it used."""
    hive = desk.hive
    if sum(len(issue.title) + len(issue.body) for issue in wish.issues) > MAX_ISSUES:
        what = f"{say_count(len(wish.issues), 'issue is', 'issues are')} too much for one question."
        raise InputError(what, advice="Give fewer of them, or no goal: then each becomes a task.")
    refuse_weak_isolation(hive, read_boot_id())
    _refuse_held(hive, runner)
    with open_trial(hive) as trial:
        return _Asking(desk, runner, wish, trial, tell).run()


def _refuse_held(hive: Hive, runner: Runner) -> None:
    """Refuse to ask what waits for a limit or a person, or when the day's budget is spent."""
    now = hive.ledger.clock.now()
    with hive.ledger.read() as connection:
        need = Need(frozenset({("day", b.DAY)}), (runner.name,))
        admission = may_start(need, queries.list_holds(connection), now)
        cap = b.find_cap("day", now[:10], hive.settings.day, queries.list_budgets(connection))
        used = queries.sum_usage_of_day(connection, now[:10])
    if isinstance(admission, Held) and admission.hold:
        advice = f"Another may be free: --runner NAME. If it works again: hive runner resume {runner.name}"
        raise UnavailableError(f"{say_hold(admission.hold)}", advice=advice)
    if cap != b.NO_CAP and cap.is_reached(used):
        raise UnavailableError(
            f"The day's budget of {cap.describe()} is spent.", advice="Type: hive budget raise today"
        )


class _Asking:
    """One question, asked at most twice."""

    def __init__(self, desk: Desk, runner: Runner, wish: Wish, trial: Trial, tell: Tell) -> None:
        self._desk, self._runner, self._wish, self._trial, self._tell = desk, runner, wish, trial, tell
        self._clock = desk.hive.ledger.clock
        self._deadline = self._clock.monotonic() + wish.at_most_s

    def run(self) -> tuple[Draft, Usage]:
        """Ask, and once more if the answer does not fit."""
        sources, used = self._desk.sources, Usage()
        shown = [Shown(each.name, str(self._trial.work / each.name), each.branch, each.verify) for each in sources]
        for source in sources:
            source.copy(self._trial.work / source.name, at_most_s=self._left_s())
        prompt = describe_goal(self._wish.goal, shown, self._wish.issues, MAX_TASKS)
        names = [source.name for source in sources]
        question = Question(prompt, make_answer_schema(names, MAX_TASKS), MAX_ANSWER)
        self._tell(f"Asking {self._runner.name} for a plan …")
        misfit: _Misfit | None = None
        for again in (False, True):
            said = self._ask(question.say(misfit.unfit if misfit else None))
            used += said.report.usage
            found = self._read(question, said.words)
            if isinstance(found, Draft):
                return found, used
            misfit = found
            if not again:
                self._tell(f"Its answer is no plan that can be run, so it is asked once more: {misfit.told}")
        told = misfit.told if misfit else ""
        raise UnavailableError(f"{self._runner.name} made no plan, twice: {told}", advice=_NOTHING)

    def _left_s(self) -> float:
        return max(0.1, self._deadline - self._clock.monotonic())

    def _ask(self, prompt: str) -> Said:
        """Ask, and refuse an end in which nothing was answered."""
        said = self._trial.ask(self._runner, prompt, at_most_s=self._left_s(), most=MAX_ANSWER, may_write=False)
        outcome, name = said.report.outcome, self._runner.name
        if said.tried.ended_by == "silence" and (outcome not in LIMITED or outcome is Outcome.NO_ANSWER):
            advice = f"{_NOTHING} To give it longer: --timeout 30m"
            raise UnavailableError(f"{name} has not answered in {self._wish.at_most_s:g} s.", advice=advice)
        if outcome not in (Outcome.DONE, Outcome.EMPTY):
            words = f": {said.report.words}" if said.report.words else ""
            advice = f"{_NOTHING} To try it: hive runner test {name}"
            raise UnavailableError(f"{name} made no plan: {outcome.words}{words}", advice=advice)
        return said

    def _read(self, question: Question, words: str) -> "Draft | _Misfit":
        """Read a plan from what was said; if it is none, why, as its file would have it."""
        if len(words) >= MAX_ANSWER:
            return _Misfit(f"it is longer than {MAX_ANSWER >> 10} KiB; a plan has at most {MAX_TASKS} tasks")
        answer = question.read(words)
        value = answer.value if isinstance(answer, Answer) else answer.found
        why = "" if isinstance(answer, Answer) else answer.why
        if value is None:
            return _Misfit(why)
        if isinstance(tasks := value.get("tasks"), list) and len(tasks) > MAX_TASKS:
            return _Misfit(f"it has {len(tasks):,} tasks; a plan has at most {MAX_TASKS}")
        about = (
            f"A plan by {self._runner.name} for: {self._wish.goal}",
            "Its commands were written by a model: read them before you run it.",
        )
        try:
            draft = self._desk.draft_answer(value, about)
        except RecursionError:
            return _Misfit("its JSON is nested too deeply")
        if isinstance(draft, Refused):
            return _Misfit(draft.told, draft.text)
        return _Misfit(why, draft.text) if why else draft


@dataclass(frozen=True, slots=True)
class _Misfit:
    """Why an answer is no plan, in words for a person, and its text if it has one."""

    told: str
    text: str = ""

    @property
    def unfit(self) -> Unfit:
        """The same for the runner, which has forgotten what it answered."""
        return Unfit(describe_problems(self.text, self.told) if self.text else self.told)
