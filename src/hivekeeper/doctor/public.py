"""Public repositories, which workers can read: whole, and with what has landed, no more and no less.

What a public repository is compared with is read first, so that what lands meanwhile is not taken for a fault.
"""

from collections.abc import Iterator
from shlex import join, quote

from hivekeeper.doctor.facts import Facts, is_moving
from hivekeeper.doctor.findings import Check, Finding, Say, fail, or_ok, warn
from hivekeeper.domain.names import name_some
from hivekeeper.domain.rows import RepoRow
from hivekeeper.domain.wording import agree, say_count
from hivekeeper.errors import HiveError, UnavailableError
from hivekeeper.git.mirror import Mirror, find_damage, list_refs
from hivekeeper.git.orders import integration_ref, source_ref


class Repository(Mirror):
    """A repository, with what only the doctor asks of one."""

    def list_loose(self) -> list[str]:
        """List the commits that none of its refs reaches."""
        said = self._ask("fsck", "--connectivity-only", "--unreachable", "--no-dangling", "--no-progress").splitlines()
        return [line.split()[2] for line in said if line.startswith("unreachable commit ")]

    def list_outside(self, commits: list[str], held: list[str]) -> list[str]:
        """List which of these commits and their ancestors the others do not have."""
        lines = "".join(f"{line}\n" for line in (*commits, *(f"^{commit}" for commit in held)))
        return self._ask("rev-list", "--stdin", text=lines).split() if commits else []

    def _ask(self, *arguments: str, text: str = "") -> str:
        result = self._git(*arguments, text=text)
        if result.returncode != 0:
            raise UnavailableError(f"git {arguments[0]} failed in {self.path}: {result.stderr.strip()}.")
        return result.stdout


def check_public(facts: Facts, say: Say) -> Iterator[Finding]:
    """Check the public repository of every repository that was ever fetched."""
    found = (finding for repo in facts.records.repos if repo.integration for finding in _check(facts, repo, say))
    return or_ok(found, Check.PUBLIC, "workers can read what has landed, and nothing else")


def _check(facts: Facts, repo: RepoRow, say: Say) -> Iterator[Finding]:
    path, mirror = facts.places.public(repo.name), Repository(facts.places.mirror(repo.name))
    if not (path / "objects").is_dir():
        what = f"{path} is gone: no worker can begin on {repo.name}, and its mirror borrows from it."
        yield fail(Check.PUBLIC, what, f"Make it again, type: {_make(facts, repo)}")
        return
    say(f"what workers can read of {repo.name}")
    away = join(("mv", str(path), str(facts.places.hive / f"{path.name}.old")))
    advice = f"Move it away and make it again, type: {away} && {_make(facts, repo)}"
    try:
        if damage := find_damage(path):
            yield fail(Check.PUBLIC, f"{path} is damaged: {damage}.", advice)
        elif (mirror.path / "objects").is_dir():
            yield from _check_unlanded(facts, repo, mirror)
            yield from _check_behind(facts, repo, mirror)
    except HiveError as error:
        yield fail(Check.PUBLIC, error.what, advice)


def _make(facts: Facts, repo: RepoRow) -> str:
    """Make the command that makes a public repository: from the person's history and what has landed."""
    public = str(facts.places.public(repo.name))
    history = join(("git", f"--git-dir={public}", "fetch", "--no-tags", repo.path, f"refs/heads/{repo.branch}"))
    return f"{join(('git', 'init', '--bare', public))} && {history} && {_bring(facts, repo)}"


def _bring(facts: Facts, repo: RepoRow) -> str:
    ref, mirror = integration_ref(repo.branch), str(facts.places.mirror(repo.name))
    public = f"--git-dir={facts.places.public(repo.name)}"
    return join(("git", public, "fetch", "--no-tags", "--no-write-fetch-head", mirror, f"+{ref}:{ref}"))


def _check_unlanded(facts: Facts, repo: RepoRow, mirror: Repository) -> Iterator[Finding]:
    public = Repository(facts.places.public(repo.name))
    git = f"git --git-dir={quote(str(public.path))}"
    refs, loose = list_refs(public.path, "refs"), public.list_loose()
    may_be_new = is_moving(facts.places, repo.name)  # fetched, and not landed yet
    landed = [tip for name in (integration_ref, source_ref) if (tip := mirror.find_commit(name(repo.branch)))]
    tips = {ref: public.find_commit(ref) for ref in refs}
    outside = set(mirror.list_outside([*loose, *filter(None, tips.values())], landed))
    for ref in (ref for ref, tip in tips.items() if tip is None or tip in outside):
        what = f"{ref} of {public.path} has not landed, and every worker can read it."
        yield warn(Check.PUBLIC, what, f"Type: {git} update-ref -d {quote(ref)}; hive doctor")
    if (stray := [commit for commit in loose if commit in outside]) and not may_be_new:
        names = name_some([commit[:12] for commit in stray])
        have, them = agree(len(stray), "has", "have"), agree(len(stray), "it", "them")
        commits = say_count(len(stray), "commit")
        what = f"{commits} of {public.path} {have} not landed, and every worker can read {them}: {names}."
        keep = f"git --git-dir={quote(str(mirror.path))} repack -adq"  # it may borrow them
        advice = f"Harmless if {repo.branch} was force-pushed. To remove {them}, while no keeper runs"
        yield warn(Check.PUBLIC, what, f"{advice}: {keep} && {git} prune --expire=now")


def _check_behind(facts: Facts, repo: RepoRow, mirror: Repository) -> Iterator[Finding]:
    ref, public = integration_ref(repo.branch), facts.places.public(repo.name)
    landed = mirror.find_commit(ref)
    if landed is None or is_moving(facts.places, repo.name):
        return
    tip = Mirror(public).find_commit(ref)
    if tip is None or not mirror.is_ancestor(landed, tip):
        what = f"{ref} of {public} is behind what has landed: it is at {tip and tip[:12]} and not at {landed[:12]}."
        advice = f"The next landing or fetch brings it there. Or now, type: {_bring(facts, repo)}"
        yield warn(Check.PUBLIC, what, advice)
