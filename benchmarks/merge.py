"""`make bench-merge`: a landing against a fresh worktree and `git merge`, a train against one at a time."""

import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from benchmarks import Figure
from benchmarks.ledger import BENCHED_BY, Say
from benchmarks.workers import _end_all, _keep, _make_repository
from hivekeeper.commands import queue
from hivekeeper.commands.plans import submit_plan
from hivekeeper.domain.plan import PlanSpec, RepoSpec, TaskSpec
from hivekeeper.git import orders
from hivekeeper.git.candidate import Candidate, Change, make_candidate
from hivekeeper.git.mirror import Mirror, list_refs
from hivekeeper.hive import open_hive
from hivekeeper.places import Places
from hivekeeper.store import queries

LANDINGS_A_ROUND, TOUCHED = 4, 3  # a branch changes so many files
# As git does it by itself: without anybody's settings, ours included.
_PLAIN = {**orders.CLEAN_ENVIRONMENT, "GIT_CONFIG_COUNT": "0"}


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured: files and by how much more than ours a worktree has to cost there, rounds, branches."""

    repositories: tuple[tuple[int, int], ...] = ((2000, 10), (20_000, 100))
    rounds: int = 5
    together: int = 40
    alone: int = 8
    gate_s: float = 2.0


SMALL = Size(((20, 10), (100, 100)), rounds=1, together=4, alone=1, gate_s=0.1)


def run_all(say: Say, *, directory: Path | None, size: Size) -> Iterator[Figure]:
    """Measure everything, in a directory on the disk where the hive would lie."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name, _end_all():
        root, shares = Path(name), list[float]()
        for files, goal in size.repositories:
            say(f"landings in a repository of {files} files …")
            shares.append((yield from measure_landings(root / f"of-{files}", files, goal, size.rounds)))
        ratio, (few, many) = shares[-1] / shares[0], (files for files, _ in size.repositories)
        yield Figure(f"git's share of a landing, {many} files / {few}", ratio, "×", "≤ 2", ratio <= 2)
        say(f"{size.together} branches, four at once, and {size.alone}, one at a time …")
        yield measure_train(root, size)


def measure_landings(root: Path, files: int, goal: int, rounds: int) -> Generator[Figure, None, float]:
    """Land branches as the queue does, and lay them out for their gate; hold that against worktrees, in turns."""
    source = _make_branches(_make_repository(root / "app", files), rounds * LANDINGS_A_ROUND)
    places, mirror, tree = Places(root), Mirror(Places(root).mirror("app")), root / "tree"
    _time(orders.fetch_repository(mirror.path, places.public("app"), str(source), "main"), orders.CLEAN_ENVIRONMENT)
    _time(_git(mirror.path, "fetch", "--quiet", source, "refs/heads/*:refs/made/*"))
    branches = iter(list_refs(mirror.path, "refs/made/b*").values())
    _check_out(places, mirror, "main")
    naive, fresh, share, again = (list[float]() for _ in range(4))
    for number in range(rounds):
        fresh.append(_time(_git(source, "worktree", "add", "--quiet", "--detach", tree)))
        merge = _git(tree, "merge", "--quiet", "--squash", f"b{number}")
        rest = (merge, _git(tree, "commit", "--quiet", "--message=one"), _git(source, "worktree", "remove", tree))
        naive.append(fresh[-1] + sum(map(_time, rest)))
        os.sync()  # ours syncs, and is not to pay for what others wrote
        landings = [_land(places, mirror, next(branches)) for _ in range(LANDINGS_A_ROUND)]
        for times, took in zip((share, again), zip(*landings, strict=True), strict=True):
            times.append(statistics.median(took))
    p50, each = statistics.median(share), ", ".join(f"{took * 1000:.0f}" for took in share)
    what = f"git's share of a landing, {files} files"
    yield Figure(f"{what}, p50", p50 * 1000, "ms", "≤ 50", p50 <= 0.05, f"rounds {each}")
    yield _hold_against(f"fresh worktree and git merge / {what}", naive, share, goal)
    yield _hold_against(f"fresh worktree / check-out for the gate, {files} files", fresh, again, 10)
    return p50


def _land(places: Places, mirror: Mirror, change: str) -> tuple[float, float]:
    """Do all that the queue does with git for one change; tell how long that took, and its check-out for the gate."""
    started = time.perf_counter()
    head = mirror.find_commit(orders.integration_ref("main"))
    wanted = Change(change, None, "one\n", "A <a@localhost>", "@1700000000 +0000")
    made = make_candidate(mirror, str(head), wanted)
    took = time.perf_counter() - started
    assert isinstance(made, Candidate)
    again = _check_out(places, mirror, made.commit)
    argv = orders.land_commit(mirror.path, places.public("app"), "main", made.commit, made.base)
    took += _time(argv, orders.CLEAN_ENVIRONMENT)
    started = time.perf_counter()
    assert mirror.is_ancestor(made.commit, orders.integration_ref("main"))
    return took + time.perf_counter() - started, again


def _check_out(places: Places, mirror: Mirror, commit: str) -> float:
    checkout, environment = places.checkout("app", 1), orders.NO_FSYNC_ENV
    return _time(orders.reuse_checkout(mirror.path, commit, checkout, "a-boot", ""), environment)


def _hold_against(what: str, theirs: list[float], ours: list[float], goal: int) -> Figure:
    # Round by round: how long a file takes to be made may change many times over while this goes on.
    ratio = statistics.median(their / our for their, our in zip(theirs, ours, strict=True))
    detail = " and ".join(f"{statistics.median(times) * 1000:.0f} ms" for times in (theirs, ours))
    return Figure(what, ratio, "×", f"≥ {goal}", ratio >= goal, detail)


def measure_train(root: Path, size: Size) -> Figure:
    """Let a keeper land branches that are all in its queue, four at once and one at a time."""
    source = _make_branches(_make_repository(root / "small", size.together * TOUCHED), size.together)
    together = _time_queue(root / "four", source, size.together, 4, size.gate_s)
    alone = _time_queue(root / "one", source, size.alone, 1, size.gate_s)
    name = f"{size.together} branches behind a gate of {size.gate_s:g} s, one at a time / four at once"
    detail = f"{alone:.2f} s and {together:.2f} s a branch"
    return Figure(name, alone / together, "×", "≥ 2.5", alone / together >= 2.5, detail)


def _time_queue(root: Path, source: Path, branches: int, at_once: int, gate_s: float) -> float:
    """Fill a queue while it is paused; tell how long a branch takes from then on."""
    with _keep(root, f"[queue]\nparallel = {at_once}\n", workers=2) as hive, closing(open_hive(root)) as mine:

        def is_full() -> bool:
            with hive.read() as connection:
                return len(queries.list_open_merges(connection)) == branches

        wanted = RepoSpec("app", str(source), verify=f"sleep {gate_s}")
        refs = list(list_refs(source / ".git", "refs/heads/b*").items())[:branches]
        with mine.ledger.write(BENCHED_BY) as tx:
            submit_plan(tx, PlanSpec("first", (TaskSpec("t", "true"),), (wanted,)))
            [repo] = queries.list_repos(tx.connection)
            queue.pause_queue(tx, repo)
            tasks = [queue.submit_branch(tx, repo, Path(ref).name, commit).task for ref, commit in refs]
        hive.wait("a full queue", is_full)
        started = time.perf_counter()
        with mine.ledger.write(BENCHED_BY) as tx:
            [repo] = queries.list_repos(tx.connection)
            queue.resume_queue(tx, repo)
        hive.wait("every branch landed", lambda: all(map(hive.is_done, reversed(tasks))))
        return (time.perf_counter() - started) / branches


def _make_branches(source: Path, branches: int) -> Path:
    """Make branches off main, each of which changes files of its own."""
    stream = ""
    for branch in range(branches):
        stream += f"commit refs/heads/b{branch}\ncommitter A <a@b> 1700000000 +0000\ndata 0\nfrom refs/heads/main^0\n"
        for number in range(branch * TOUCHED, branch * TOUCHED + TOUCHED):
            stream += f"M 100644 inline part-{number // 50}/file-{number}.txt\ndata 4\nnew\n\n"
    _time(_git(source, "fast-import", "--quiet"), _PLAIN, stream)
    return source


def _git(directory: Path, *arguments: str | Path) -> Sequence[str]:
    return ("git", "-C", str(directory), *map(str, arguments))


def _time(argv: Sequence[str], environment: Mapping[str, str] = _PLAIN, text: str = "") -> float:
    """Run a command to its end; tell how long that took."""
    started = time.perf_counter()
    said, environment = subprocess.DEVNULL, {**os.environ, **environment}
    subprocess.run(argv, env=environment, input=text.encode(), stdout=said, check=True)
    return time.perf_counter() - started
