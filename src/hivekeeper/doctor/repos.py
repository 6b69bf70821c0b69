"""The person's repositories: each is where the ledger says and has its branch; and no wait is too long."""

from collections.abc import Iterator
from shlex import join

from hivekeeper.clock import to_seconds
from hivekeeper.doctor.facts import Facts
from hivekeeper.doctor.findings import Check, Finding, fail, or_ok, warn
from hivekeeper.domain.plan import is_url
from hivekeeper.domain.waits import MAX_FETCH_WAIT_S, MAX_HOLD_S, MAX_PUBLISH_WAIT_S, SLACK_S
from hivekeeper.domain.wording import say_count
from hivekeeper.git.mirror import find_source_problem


def check_repos(facts: Facts) -> Iterator[Finding]:
    """Check that every repository on this machine is where the ledger says; others are checked by a fetch."""
    local = [repo for repo in facts.records.repos if not is_url(repo.path)]
    found = (
        fail(Check.REPOS, f"Repository {repo.name} cannot be used: {problem}.", _advise_moving(repo.name))
        for repo in local
        if (problem := find_source_problem(repo.path, repo.branch))
    )
    return or_ok(found, Check.REPOS, f"{len(local)} on this machine, each with its branch")


def _advise_moving(repo: str) -> str:
    return f"Bring it back, or set its new path: {join(('hive', 'repo', 'set', repo, '--path'))} NEW"


def check_waits(facts: Facts) -> Iterator[Finding]:
    """Check for waits that end later than their rule allows, for example after the clock was wrong."""
    records = facts.records
    waits = [
        *(("Publishing", r.name, r.publish_retry_at, MAX_PUBLISH_WAIT_S) for r in records.repos if r.publish_problem),
        *(("Fetching", repo.name, repo.fetch_retry_at, MAX_FETCH_WAIT_S) for repo in records.repos),
        *((f"The hold of {hold.scope}", hold.name, hold.until, MAX_HOLD_S) for hold in records.holds),
    ]
    advice = "Check the time: date -u. A keeper ends the wait if the clock was ahead when it began: hive up"
    found = (
        warn(Check.WAITS, f"{kind} {name} waits until {until[:19]}Z, {_describe_excess(left_s, longest_s)}", advice)
        for kind, name, until, longest_s in waits
        if until is not None and (left_s := to_seconds(until) - facts.now_s) > longest_s + SLACK_S
    )
    return or_ok(found, Check.WAITS, "none is longer than its rule allows")


def _describe_excess(left_s: float, longest_s: float) -> str:
    rule = f"It may wait {longest_s / 3600:.1f} hours at most: this machine's clock was wrong, or is."
    return f"{say_count(round(left_s / 3600), 'hour')} from now. {rule}"
