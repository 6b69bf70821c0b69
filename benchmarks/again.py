"""`make bench-merge ARGS=--again`: what the hive itself adds when refused work is done anew, and when it is mended.

Pairs of scripted agents make changes that pass alone and fail together. The second of each pair is refused: a command
is run anew on today's branch, an agent with a prompt goes on from its work. Each takes as long as it says; what is
measured is everything else, from the refusal to the landing.
"""

import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path

from benchmarks import Figure
from benchmarks.ledger import Say
from benchmarks.workers import _end_all, _Hive, _keep, _make_repository
from hivekeeper.clock import to_seconds
from hivekeeper.domain import events as e
from hivekeeper.domain.merge import REDO, REWORK
from hivekeeper.domain.plan import RepoSpec, TaskSpec
from hivekeeper.store.ledger import read_events

PAIRS, WORK_S, FILES = 5, 1.0, 200
_GATE = "for one in *.a; do other=${one%.a}.b; ! { test -e $one && test -e $other; } || exit 1; done"


def run_all(say: Say, *, directory: Path | None) -> Iterator[Figure]:
    """Measure both ways in one run, with the same agents."""
    with tempfile.TemporaryDirectory(prefix="hive-bench-", dir=directory) as name, _end_all():
        root = Path(name)
        source = _make_repository(root / "app", FILES)
        settings = '[runners.scripted-pair]\ncommand = "sh -c \'sh \\"$1\\"\' sh"\n'
        with _keep(root / "hive", settings, workers=2 * PAIRS) as hive:
            took: dict[str, float] = {}
            for mode in (REDO, REWORK):
                say(f"{PAIRS} pairs whose second is refused: {mode} …")
                took[mode] = _measure(hive, source, mode)
                what = f"from a refusal to the landing, beside the agent's own {WORK_S:g} s ({mode})"
                yield Figure(what, took[mode] * 1000, "ms", "measured", reached=True)
            ratio = took[REDO] / took[REWORK]
            yield Figure("what anew adds / what mending adds", ratio, "×", "measured", reached=True)


def _measure(hive: _Hive, source: Path, mode: str) -> float:
    tasks = [_make_task(pair, who, mode) for pair in range(PAIRS) for who in "ab"]
    hive.submit(mode, *tasks, repo=RepoSpec("app", str(source), verify=_GATE))
    hive.wait("every pair landed", lambda: all(hive.is_done(f"{mode}/{task.id}") for task in tasks))
    with hive.read() as connection:
        events = read_events(connection, 0, 1 << 31)
    refused = {ev.body.task: to_seconds(ev.recorded_at) for ev in events if isinstance(ev.body, e.MergeRejected)}
    landed = {ev.body.task: to_seconds(ev.recorded_at) for ev in events if isinstance(ev.body, e.MergeLanded)}
    return statistics.median(landed[task] - at - WORK_S for task, at in refused.items() if task.startswith(f"{mode}/"))


def _make_task(pair: int, who: str, mode: str) -> TaskSpec:
    name, other = f"{mode}-{pair}", "b" if who == "a" else "a"
    is_second = f'test -e {name}.{other} || test -n "$HIVE_FEEDBACK"'
    mend = f"rm -f {name}.{who}; echo {who} > {name}.c"
    script = f"sleep {WORK_S}; if {is_second}; then {mend}; else echo {who} > {name}.{who}; fi"
    if mode == REDO:
        return TaskSpec(f"{name}-{who}", script, repo="app")
    return TaskSpec(f"{name}-{who}", repo="app", prompt=f"{script}\nexit\n", runner="scripted-pair")
