"""The scenarios: each prepares a directory, acts in it until it is killed, and is recovered by somebody else.

To add one: a function that prepares, a function that acts, and one call of `scenario` that names both, what more its
judge asks for, and bugs that it must show. Whatever the crash left, the recovery must bring it to its end, and
`Play.check` must find nothing lost, doubled, unexpected or out of order.
"""

import json
import os
import shutil
import time
from dataclasses import replace
from pathlib import Path

from hivekeeper.commands.plans import submit_plan
from hivekeeper.commands.tasks import cancel_task, retry_task
from hivekeeper.domain.plan import PlanSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import StaleEpochError
from hivekeeper.places import Places
from hivekeeper.runs import wrapper
from hivekeeper.store import queries
from tests.crash import archives, limits, mail, seance, trains  # noqa: F401 - they declare theirs
from tests.crash.mutants import (
    Mutant,
    Tier,
    act_before_intent,
    believe_exit_codes,
    claim_without_excluding,
    commit_every_event,
    disown_runs,
    forget_epochs,
    keep_nothing,
    move_refs_unsynced,
    project_differently,
    publish_nothing,
    release_anybodys,
    reuse_verdicts,
    skip_gates,
    start_over,
    sync_too_little,
    trust_old_boots,
)
from tests.crash.playing import (
    SCENARIOS,
    fetch,
    has_landed,
    is_intended,
    is_landing,
    is_submitted,
    list_submitted,
    play_until,
    scenario,
)
from tests.crash.stage import PATIENCE_S, Play
from tests.stage import ME

__all__ = ["MUTANTS", "SCENARIOS"]


def nothing(_stage: Play) -> None:
    pass


def create(stage: Play) -> None:
    stage.make_hive()
    stage.tell("created")


def recreate(stage: Play) -> None:
    stage.make_hive()
    submit_three(stage)
    stage.finish()


def submit_three(stage: Play) -> None:
    stage.submit(stage.task("a"), stage.task("b", after=("a",)), stage.task("c"))


def resubmit(stage: Play) -> None:
    submit_three(stage)
    stage.finish()


def submitted(stage: Play) -> None:
    stage.make_hive()
    stage.submit(
        stage.task("a", outputs=("a.txt",)),
        stage.task("b", after=("a",), idempotent=True),
        stage.task("c", idempotent=True),
    )


def step_once(stage: Play) -> None:
    with stage.keeper() as keeper:
        stage.step(keeper)


def dispatched(stage: Play) -> None:
    submitted(stage)
    step_once(stage)


def started(stage: Play) -> None:
    dispatched(stage)
    step_once(stage)


def start_and_leave(stage: Play) -> None:
    """Ask for runs that take a while, and be gone before any of them has ended."""
    with stage.keeper() as keeper:
        keeper.step()
        os._exit(0)


def dispatched_slowly(stage: Play) -> None:
    stage.make_hive()
    command = stage.task("a").command
    stage.submit(stage.task("a", command=f"{command} && sleep 0.2 && echo a > a.txt", outputs=("a.txt",)))
    step_once(stage)


def failing(stage: Play) -> None:
    stage.make_hive()
    mark = stage.task("a").command
    stage.submit(
        stage.task("a", command=f'{mark} && test "$HIVE_ATTEMPT" = 2', attempts=2),
        stage.task("b", command=f"{mark} && false", attempts=2),
        stage.task("c", after=("b",)),
    )


def lying(stage: Play) -> None:
    """Agents that end with exit code 0 and have made nothing."""
    stage.make_repository()
    stage.make_hive()
    stage.submit(
        stage.task("a", command=stage.mark, outputs=("a.txt",), attempts=2),
        stage.task("b", command=stage.mark, repo=True, attempts=1),
        repos=(stage.repo(),),
    )


def on_repository(stage: Play) -> None:
    stage.make_repository()
    stage.make_hive()
    stage.submit(stage.task("a", repo=True), stage.task("b", repo=True, after=("a",)), repos=(stage.repo(),))


def fetched(stage: Play) -> None:
    on_repository(stage)
    fetch(stage)


def laid_out(stage: Play) -> None:
    fetched(stage)
    play_until(stage, is_intended("agent"))


def work_alone(stage: Play) -> None:
    play_until(stage, is_intended("snapshot"))


def work(stage: Play) -> None:
    play_until(stage, is_submitted)


def worked(stage: Play) -> None:
    fetched(stage)
    work(stage)


def land(stage: Play) -> None:
    play_until(stage, has_landed)


def landing(stage: Play) -> None:
    worked(stage)
    play_until(stage, is_landing)


def landed(stage: Play) -> None:
    stage.make_repository()
    stage.make_hive()
    stage.submit(stage.task("a", repo=True), repos=(stage.repo(),))
    play_until(stage, has_landed)


def conflicting(stage: Play) -> None:
    """Two tasks that write the same line: the second is refused and made anew on what landed."""
    stage.make_repository()
    stage.make_hive()
    mark = stage.task("a").command
    tasks = [stage.task(name, repo=True, command=f"{mark} && echo {name} > README") for name in ("a", "b")]
    stage.submit(*tasks, repos=(stage.repo(verify=None),))
    play_until(stage, lambda keeper: len(list_submitted(keeper)) == 2)


def cancelling(stage: Play) -> None:
    """A task at work that a person cancels: its command waits for an end that only comes from outside."""
    stage.make_repository()
    stage.make_hive()
    command = f"{stage.task('a').command} && exec sleep 30"
    stage.submit(stage.task("a", repo=True, command=command), repos=(stage.repo(),))
    fetch(stage)
    with stage.keeper() as keeper:
        deadline = time.monotonic() + PATIENCE_S
        while "begun work/a 1" not in stage.list_said() and time.monotonic() < deadline:
            keeper.step()
            time.sleep(0.1)  # real time: the clone is made, and the agent begins and does not end
        assert "begun work/a 1" in stage.list_said(), "its agent did not begin"
        keeper.step()
    with stage.ledger() as ledger, ledger.write(ME) as tx:
        task = queries.find_task(tx.connection, "work/a")
        assert task is not None
        cancel_task(tx, task)


def cancel(stage: Play) -> None:
    with stage.keeper() as keeper:
        stage.play(keeper, lambda: stage.is_settled(keeper))


def failed(stage: Play) -> None:
    failing(stage)
    stage.finish()


def ask(stage: Play) -> None:
    """A person's wishes: another try for what failed, and one task less."""
    with stage.ledger() as ledger:
        for key, wish in (("work/b", retry_task), ("work/c", cancel_task)):
            with ledger.write(ME) as tx:
                task = queries.find_task(tx.connection, key)
                assert task is not None
                wish(tx, task)
            stage.tell(f"asked {key}")


def reask(stage: Play) -> None:
    ask(stage)
    stage.finish()


def complete(stage: Play) -> None:
    stage.make_hive()
    stage.submit(stage.task("a"), stage.task("b"))
    stage.finish()


def check_archived(stage: Play) -> list[str]:
    with stage.ledger() as ledger, ledger.read() as connection:
        states = [convoy.state for convoy in queries.list_convoys(connection, archived=True)]
    return [] if states == [ConvoyState.ARCHIVED] else [f"lost: its convoy is not archived: {states}"]


def orphaned(stage: Play) -> None:
    """A keeper that died without a word, with one run asked for and nobody to hear of its end."""
    stage.make_hive()
    stage.submit(stage.task("a"), stage.task("b", after=("a",), outputs=("b.txt",), idempotent=True))
    if (pid := os.fork()) == 0:
        with stage.keeper() as keeper:
            stage.step(keeper)
            stage.step(keeper)
            os._exit(0)
    os.waitpid(pid, 0)


def follow_frozen(stage: Play) -> None:
    """Two keepers: the first has lost its kernel lock while it was frozen, wakes up late and goes on writing."""
    with stage.ledger() as ledger:
        frozen = stage.take_lease(ledger)
        stage.step(frozen)
        lock = frozen._lease._lock  # noqa: SLF001 - what the kernel takes from a dead process, a living one must be robbed of
        assert lock is not None
        os.close(lock)
        frozen._lease._lock = None  # noqa: SLF001 - see above
        with stage.keeper() as successor:
            stage.step(successor)
            try:
                for loop in frozen.loops:
                    loop.run_once()
                    with frozen.hive.ledger.write(frozen.authority):
                        pass
            except StaleEpochError:
                stage.tell("refused")
            else:
                stage.tell("complete THE-WOKEN-KEEPER-WAS-LET-IN")  # a promise that no ledger can keep
            frozen.close()
            stage.play(successor, lambda: stage.is_settled(successor))


def restored(stage: Play) -> None:
    """An older copy of the ledger put back after more had been done: the world knows more than the ledger."""
    stage.make_repository()
    stage.make_hive()
    tasks = (stage.task("a", outputs=("a.txt",)), stage.task("b", after=("a",), repo=True), stage.task("c", repo=True))
    stage.submit(*tasks, repos=(stage.repo(),))
    play_until(stage, has_landed)
    ledger = stage.places.ledger
    shutil.copy(ledger, stage.copy)
    stage.finish()
    shutil.copy(stage.copy, ledger)
    said = stage.list_said()
    stage.said.write_text("".join(f"{line}\n" for line in said if not line.startswith("complete")))


def equipped(stage: Play) -> None:
    """A repository whose clones need a setup, and whose work is backed up."""
    stage.make_repository()
    (stage.app / "lock").write_text("one\n")
    stage.git("add", "--all")
    stage.git("commit", "--quiet", "-m", "lock")
    backup = stage.root.parent / "backup.git"
    stage.git("init", "--quiet", "--bare", "--template=", str(backup))
    setup = "mkdir -p env && cp lock env/lock"
    spec = replace(stage.repo(), setup=setup, keep=("env",), lock=("lock",), backup=str(backup))
    stage.make_hive()
    command = f"{stage.mark} && grep one env/lock && rm -r env && echo $HIVE_TASK > $HIVE_TASK.txt"
    stage.submit(*(stage.task(name, repo=True, command=command) for name in "ab"), repos=(spec,))
    fetch(stage)


def equip(stage: Play) -> None:
    stage.settings = replace(stage.settings, workers=1)
    stage.finish()


def interrupted(stage: Play) -> None:
    """A worker that is cut off half-way, and a successor that goes on from there."""
    stage.make_repository()
    stage.make_hive()
    command = f"{stage.mark} && if [ -e a.txt ]; then echo a > a.txt; else echo half > a.txt; sleep 0.3; exit 1; fi"
    stage.submit(stage.task("a", repo=True, command=command, attempts=2), repos=(stage.repo(),))
    play_until(stage, is_intended("agent"))


def go_on(stage: Play) -> None:
    stage.settings = replace(stage.settings, snapshot_every_s=0.0)
    with stage.keeper() as keeper:
        keeper.step()
        keeper.step()  # while it still works, so that what it has made is saved
        stage.play(keeper, lambda: stage.is_settled(keeper))


def to_accept(stage: Play) -> None:
    stage.make_repository()
    stage.make_hive()
    with stage.ledger() as ledger, ledger.write(ME) as tx:
        submit_plan(tx, PlanSpec("work", (stage.task("a", repo=True),), (stage.repo(),), accept="cat app/a.txt"))
    stage.tell("submitted work")
    play_until(stage, has_landed)


def wrap(stage: Play) -> None:
    """Be the wrapper of an intended run, in place of the nursery."""
    with stage.ledger() as ledger, ledger.read() as connection:
        row = next(run for run in queries.list_open_runs(connection) if run.kind == "agent")
        places = Places(Path(stage.root))
        told = {name: places.resolve(word) for name, word in json.loads(row.environment).items()}
        hive = connection.rows("SELECT hive FROM head")[0][0]
    environment = {"PATH": os.environ["PATH"], "HIVE_RUN": f"{hive}/{row.id}", **told}
    request: dict[str, object] = {
        "run": row.id,
        "run_directory": f"{stage.root}/.hive/runs/{row.id}",
        "claim": {"boot_id": row.boot_id, "order": ""},
        "argv": ["sh", "-c", 'echo words && exec sh -c "$0"', json.loads(row.argv)[-1]],
        "directory": places.resolve(row.directory),
        "environment": environment,
        "limits": {},
    }
    wrapper.libc.prctl(36, 1, 0, 0, 0)
    wrapper.identity.update(pid=os.getpid(), start_ticks=wrapper.read_start_ticks(os.getpid()))
    wrapper.run(request, os.open(os.devnull, os.O_WRONLY))


scenario("create", "a ledger is made", given=nothing, act=create, recover=recreate)
scenario(
    "submit",
    "a person submits a plan",
    given=Play.make_hive,
    act=submit_three,
    recover=resubmit,
    planted=(
        Mutant(
            "`synchronous=NORMAL`",
            "what was acknowledged is durable",
            sync_too_little,
            shown="the ledger forgot",
            tier=Tier.POWER_CUTS,
        ),
    ),
)
scenario("ask", "a person asks for another try, and cancels", given=failed, act=ask, recover=reask)
scenario(
    "dispatch",
    "tasks are dispatched, their intents written",
    given=submitted,
    act=step_once,
    planted=(
        Mutant(
            "effect before intent",
            "no effect without an earlier durable intent",
            act_before_intent,
            shown="it began before it was intended",
        ),
        Mutant("projection differing from replay", "state = fold(log)", project_differently, shown="replay differs"),
    ),
)
scenario(
    "start",
    "intended runs are asked for",
    given=dispatched,
    act=step_once,
    planted=(
        Mutant(
            "start without the exclusive claim", "a run starts once", claim_without_excluding, shown="began 2 times"
        ),
    ),
)
scenario("leave", "the keeper is dead for the whole life of a run", given=dispatched_slowly, act=start_and_leave)
scenario("exit", "ended runs are recorded, tasks completed, the convoy ended", given=started, act=Play.finish)
scenario("wrap", "the wrapper beside a run: claim, output, exit record", given=dispatched, act=wrap, is_sure=False)
scenario(
    "retry",
    "failed attempts, another swarm, the last attempt",
    given=failing,
    act=Play.finish,
    planted=(
        Mutant(
            "run not adopted",
            "the end of a run is found whoever was dead",
            disown_runs,
            shown="UNKNOWN",
            tier=Tier.KILLS,
        ),
        Mutant(
            "effect repeated", "what was begun is not begun again", start_over, shown="began 2 times", tier=Tier.KILLS
        ),
    ),
)
scenario(
    "cancel",
    "a cancelled task's living processes are ended, its work kept",
    given=cancelling,
    act=cancel,
    planted=(
        Mutant(
            "snapshot believed unseen",
            "a sandbox goes only when its work is kept",
            keep_nothing,
            shown="nothing of it is kept",
        ),
        Mutant(
            "transaction split in two",
            "what belongs together is there together",
            commit_every_event,
            shown="it has not come to that",
            tier=Tier.KILLS,
            calls="fdatasync",
        ),
    ),
)
scenario(
    "lie",
    "agents that end with exit code 0 and made nothing",
    given=lying,
    act=Play.finish,
    planted=(
        Mutant(
            "outcome from an exit code alone",
            "done is what is there, not what was said",
            believe_exit_codes,
            shown="lost",
        ),
    ),
)
scenario("fetch", "a repository's mirror is made", given=on_repository, act=fetch)
scenario(
    "agent",
    "an agent works in its clone; nothing of it is kept yet",
    given=laid_out,
    act=work_alone,
    planted=(
        Mutant(
            "torn sandbox believed after a restart",
            "what nobody synced is not believed",
            trust_old_boots,
            shown="is not what it wrote",
            tier=Tier.POWER_CUTS,
            at_the_end=True,
        ),
    ),
)
scenario("work", "clone, agent, snapshot, entry into the queue", given=fetched, act=work)
scenario(
    "land",
    "candidate, gate, landing",
    given=worked,
    act=land,
    planted=(
        Mutant(
            "ref moved before its objects are synced",
            "what has landed is whole",
            move_refs_unsynced,
            shown="is not on the branch",
            tier=Tier.POWER_CUTS,
        ),
        Mutant("gate skipped", "every landed tree was verified", skip_gates, shown="nobody verified its tree"),
        Mutant(
            "verdict of another tree reused",
            "the tree tested is the tree landed",
            reuse_verdicts,
            shown="nobody verified its tree",
        ),
    ),
)
scenario("conflict", "two changes of one line: refused, made anew, landed", given=conflicting, act=Play.finish)
scenario(
    "publish",
    "what landed goes to the person's repository; the sandbox is removed",
    given=landed,
    act=Play.finish,
    planted=(
        Mutant(
            "publishing believed unseen",
            "published is what the person's repository has",
            publish_nothing,
            shown="its branch is elsewhere",
        ),
    ),
)
scenario("equip", "clones, setup, stash, backup", given=equipped, act=equip)
scenario("go-on", "saves of a worker that is cut off, and its successor", given=interrupted, act=go_on)
scenario("accept", "a convoy is tried as a whole", given=to_accept, act=Play.finish)
scenario(
    "archive",
    "a complete convoy is archived",
    given=complete,
    act=Play.archive,
    recover=Play.archive,
    check=check_archived,
)
scenario("takeover", "a keeper follows one that died holding the lease", given=orphaned, act=Play.finish)
scenario(
    "two-keepers",
    "a frozen keeper wakes up beside its successor",
    given=submitted,
    act=follow_frozen,
    planted=(
        Mutant(
            "no epoch check",
            "a keeper of an older epoch writes nothing",
            forget_epochs,
            shown="THE-WOKEN-KEEPER-WAS-LET-IN",
        ),
        Mutant(
            "release by a non-owner",
            "only the holder gives the lease back",
            release_anybodys,
            shown="without the lease",
        ),
    ),
)
scenario("restore", "an older copy of the ledger was put back", given=restored, act=Play.finish)
scenario("git-fetch", "git itself is struck while a mirror is made", given=on_repository, act=fetch, by_git=True)
scenario("git-work", "git itself is struck in clone and snapshot", given=fetched, act=work, by_git=True)
scenario("git-land", "git itself is struck while a candidate lands", given=worked, act=land, by_git=True)
scenario("git-publish", "git itself is struck while publishing", given=landed, act=Play.finish, by_git=True)

MUTANTS = {mutant.name: mutant for each in SCENARIOS.values() for mutant in each.planted}
