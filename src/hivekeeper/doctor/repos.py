"""The person's repositories: each is where the ledger says and has its branch; and nothing waits longer than it may."""

from collections.abc import Iterator
from shlex import join

from hivekeeper.clock import to_seconds
from hivekeeper.doctor.facts import Facts
from hivekeeper.doctor.findings import Check, Finding, Level
from hivekeeper.domain.plan import is_url
from hivekeeper.domain.waits import MAX_FETCH_WAIT_S, MAX_HOLD_S, MAX_PUBLISH_WAIT_S, SLACK_S
from hivekeeper.git.mirror import find_source_problem


def check_repos(facts: Facts) -> Iterator[Finding]:
    """Look for every repository on this machine where the ledger says it is; others are asked by a fetch only."""
    repos, is_well = facts.records.repos, True
    for repo in repos:
        if not is_url(repo.path) and (problem := find_source_problem(repo.path, repo.branch)):
            what = f"Repository {repo.name} cannot be used: {problem}."
            advice = f"Bring it back, or say where it is now: {join(('hive', 'repo', 'set', repo.name, '--path'))} NEW"
            yield Finding(Check.REPOS, Level.FAIL, what, advice)
            is_well = False
    if is_well:
        here = sum(not is_url(repo.path) for repo in repos)
        yield Finding(Check.REPOS, Level.OK, f"{here} on this machine, each with its branch")


def check_waits(facts: Facts) -> Iterator[Finding]:
    """Look for waits that end later than their rule allows, as after the clock was wrong."""
    records = facts.records
    waits = [
        *(("publishing", r.name, r.publish_retry_at, MAX_PUBLISH_WAIT_S) for r in records.repos if r.publish_problem),
        *(("fetching", repo.name, repo.fetch_retry_at, MAX_FETCH_WAIT_S) for repo in records.repos),
        *((f"the hold of {hold.scope}", hold.name, hold.until, MAX_HOLD_S) for hold in records.holds),
    ]
    is_well = True
    for kind, name, until, longest_s in waits:
        if until is not None and (left_s := to_seconds(until) - facts.now_s) > longest_s + SLACK_S:
            what = f"{kind} {name} waits until {until[:19]}Z, {left_s / 3600:,.0f} hours from now."
            rule = f"It may wait {longest_s / 3600:.1f} hours at most: this machine's clock was wrong, or is."
            advice = "Check the time: date -u. A keeper ends the wait if the clock was ahead when it began: hive up"
            yield Finding(Check.WAITS, Level.WARN, f"{what[0].upper()}{what[1:]} {rule}", advice)
            is_well = False
    if is_well:
        yield Finding(Check.WAITS, Level.OK, "none is longer than its rule allows")
