"""A clone of the pool is taken by a worker while the keeper empties the pool: whoever has it has all of it."""

import json
import os
import subprocess
import time
from pathlib import Path

from hivekeeper.domain.plan import TaskSpec
from hivekeeper.git import orders
from hivekeeper.store import queries
from tests.git import git
from tests.hostile.conftest import Person, Theatre, open_theatre

FILES = 1000
ENVIRONMENT = {**os.environ, **orders.CLEAN_ENVIRONMENT}


def _find_removal(theatre: Theatre) -> tuple[str, ...]:
    """Have the keeper decide to empty the pool, which nobody waits for, and find what it would run."""
    with theatre.hive.ledger.read() as connection:
        pool = [run for run in queries.list_open_runs(connection) if run.kind == "pool"]
    return tuple(json.loads(pool[0].argv))


def test_a_worker_that_takes_a_clone_while_the_pool_is_emptied_has_every_file(tmp_path: Path) -> None:
    """So it is with the last task of every convoy: once it is dispatched nobody waits, and the pool is emptied."""
    person = Person(tmp_path / "app")
    for number in range(FILES // 50):
        (person.path / str(number)).mkdir()
    person.commit({f"{number // 50}/{number}": "x\n" for number in range(FILES)}, "many files")
    with open_theatre(tmp_path / "hive") as theatre:
        theatre.play(TaskSpec("A", "echo x > x", repo="app"), repos=(person.spec(),))
        keeper, places = theatre.keeper, theatre.hive.places
        assert keeper is not None
        keeper.close()
        pool = f"{places.pool('app')}.{keeper.runs.boot_id[:8]}"
        subprocess.run(orders.fill_pool(places.public("app"), "main", Path(f"{pool}.1")), check=True, env=ENVIRONMENT)
        successor = theatre.take()
        next(loop for loop in successor.loops if loop.name == "stocker").run_once()
        removing = subprocess.Popen(_find_removal(theatre))
        deadline = time.monotonic() + 10.0
        while Path(f"{pool}.1", ".git", "HEAD").exists() and Path(f"{pool}.1", "0", "1").exists():
            assert time.monotonic() < deadline, "nobody begins to empty the pool"
        room = places.sandbox("work/B", 1)
        argv = orders.make_sandbox(room, places.public("app"), "main", pool, places.mirror("app"), "", "")
        made = subprocess.run(argv, env=ENVIRONMENT, check=False, capture_output=True, text=True)
        removing.wait()
        assert made.returncode == 0, made.stderr
        assert git(room / "work", "status", "--porcelain") == ""
        assert len(git(room / "work", "ls-files").splitlines()) == FILES + 2
