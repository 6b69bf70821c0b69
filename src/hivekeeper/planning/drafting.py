"""A plan is put together from what was answered or from issues, written as a file would have it, and checked."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hivekeeper.config.located import Problems
from hivekeeper.config.plan_text import write_plan
from hivekeeper.config.plans import read_plan
from hivekeeper.domain.issues import Issue, find_free, make_slug, make_tasks
from hivekeeper.domain.picture import Command, list_commands
from hivekeeper.domain.plan import PlanSpec
from hivekeeper.domain.wording import say_count
from hivekeeper.errors import InputError
from hivekeeper.hive import Hive
from hivekeeper.planning.sources import Source
from hivekeeper.store import queries


@dataclass(frozen=True, slots=True)
class Draft:
    """A plan as text, and read again. `author` is the runner that wrote it, and `written` the commands it wrote."""

    text: str
    plan: PlanSpec
    author: str = ""
    written: tuple[Command, ...] = ()


@dataclass(frozen=True, slots=True)
class Refused:
    """A plan as text, and what is wrong with it, line by line."""

    text: str
    told: str


@dataclass(frozen=True, slots=True)
class Desk:
    """Where a plan is put together: for this hive, file, runner and repositories."""

    hive: Hive
    file: Path
    runner: str
    sources: Sequence[Source]

    def draft_answer(self, answer: Mapping[str, Any], about: Sequence[str]) -> Draft | Refused:
        """Make a plan of what a runner answered, whatever that is."""
        plan = {**answer, "convoy": self._name_convoy(answer.get("convoy")), "repos": self._merge_repos(answer)}
        text = self._write(plan, about)
        try:
            draft = self._read(text)
        except InputError as error:
            return Refused(text, str(error))
        given = {(f"repo {source.name}", key) for source in self.sources for key in source.known}
        written = (each for each in list_commands(draft.plan) if (each.part, each.key.split()[0]) not in given)
        return replace(draft, author=self.runner, written=tuple(written))

    def draft_issues(self, issues: Sequence[Issue], name: str) -> Draft:
        """Make a plan with a task for each issue, named after the file they come from."""
        if len(self.sources) != 1:
            names = ", ".join(source.name for source in self.sources) or "none"
            advice = "Name one: --repo DIR. With a goal too, a runner decides what belongs where."
            raise InputError(f"Issues become tasks of one repository, and here there is {names}.", advice=advice)
        [source] = self.sources
        with self.hive.ledger.read() as connection:
            strengths = queries.list_strengths(connection)
        plan = {
            "convoy": self._name_convoy(make_slug(name) or "issues"),
            "repos": self._describe_repos([source.name]),
            "tasks": make_tasks(issues, source.name, strengths),
        }
        return self._read(self._write(plan, (f"A task each for {say_count(len(issues), 'issue')}.",)))

    def _write(self, plan: Mapping[str, Any], about: Sequence[str]) -> str:
        ordered = {key: plan[key] for key in ("convoy", "accept", "repos") if plan.get(key)}
        rest = {key: value for key, value in plan.items() if key not in ("convoy", "accept", "repos", "defaults")}
        return write_plan({**ordered, "defaults": {"runner": self.runner}, **rest}, about)

    def _read(self, text: str) -> Draft:
        problems = Problems(self.file.name, "it is no plan")
        spec = read_plan(text, self.file, problems, self.hive.settings.limits, self.hive.settings.runner_names)
        return Draft(text, spec)

    def _merge_repos(self, answer: Mapping[str, Any]) -> dict[str, Any]:
        """Describe the repositories that an answer is about: it adds to what is given, and replaces none of it."""
        tasks, said = answer.get("tasks"), answer.get("repos")
        said = said if isinstance(said, dict) else {}
        used = [task.get("repo") for task in tasks if isinstance(task, dict)] if isinstance(tasks, list) else []
        repos = self._describe_repos([name for name in (*said, *used) if isinstance(name, str)])
        for name, more in said.items():
            given = repos.get(name, {})
            added = {k: v for k, v in more.items() if k not in given} if isinstance(more, dict) else {}
            repos[name] = {**given, **added}
        return repos

    def _describe_repos(self, names: Collection[str]) -> dict[str, Any]:
        return {source.name: source.describe(self.file.parent) for source in self.sources if source.name in names}

    def _name_convoy(self, said: object) -> object:
        """Take a name that no convoy has yet; what is no name is left for the check to tell."""
        if not isinstance(said, str):
            return said
        with self.hive.ledger.read() as connection:
            taken = {convoy.name for convoy in queries.list_convoys(connection, archived=True)}
        return find_free(said, taken)
