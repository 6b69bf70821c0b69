"""Scenarios of the merge queue: several candidates at once, conflicts, branches handed in by hand, publishing."""

import os
from dataclasses import replace

from hivekeeper.commands.queue import prioritize_entry, submit_branch
from hivekeeper.domain.plan import RepoSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.git import forward, orders
from hivekeeper.store import queries
from tests.crash.mutants import Mutant, land_out_of_order, pass_the_failed
from tests.crash.playing import Act, has_landed, is_intended, list_submitted, play_until, scenario
from tests.crash.stage import Play
from tests.stage import ME

GATE = "test ! -e bad.txt"


def begin(stage: Play, spec: RepoSpec, *names: str, command: str = "") -> None:
    """Have workers hand in a change each, until all of them are in the queue."""
    stage.make_hive()
    commands = [f"{stage.mark} && {command or f'echo {name} > {name}.txt'}" for name in names]
    tasks = [stage.task(name, repo=True, command=said) for name, said in zip(names, commands, strict=True)]
    stage.submit(*tasks, repos=(spec,))
    stage.settings = replace(stage.settings, workers=len(names))
    play_until(stage, lambda keeper: len(list_submitted(keeper)) == len(names))


def queued(stage: Play) -> None:
    """Three changes in the queue; the one in the middle does not pass, whatever it is made on."""
    stage.make_repository()
    stage.make_hive()
    bad = f"{stage.mark} && echo b > b.txt && echo b > bad.txt"
    tasks = [
        stage.task("a", repo=True),
        stage.task("b", repo=True, command=bad, attempts=1),
        stage.task("c", repo=True),
    ]
    stage.submit(*tasks, repos=(stage.repo(verify=GATE),))
    stage.settings = replace(stage.settings, workers=len(tasks))
    play_until(stage, lambda keeper: len(list_submitted(keeper)) == len(tasks))


def mended(stage: Play) -> None:
    """Two changes: the first passes only together with the second, which is made on it."""
    stage.make_repository()
    begin(stage, stage.repo(verify="test ! -e a.txt || test -e b.txt"), "a", "b")


def run_train(stage: Play) -> None:
    stage.settings = replace(stage.settings, parallel=4)
    stage.finish()


def verifying(stage: Play) -> None:
    """Two candidates at their gates, the second made on the first, and a third that waits."""
    stage.make_repository()
    begin(stage, stage.repo(), "a", "b", "c")
    play_until(stage, is_intended("gate", 2))


def overtake(stage: Play) -> None:
    """A person has the third go first: what is at work was made on something that does not come to be."""
    with stage.ledger() as ledger, ledger.write(ME) as tx:
        task = queries.find_task(tx.connection, "work/c")
        assert task is not None
        prioritize_entry(tx, task)
    stage.finish()


def with_resolver(act: Act) -> Act:
    """Have somebody there who settles conflicts, whoever keeps the hive."""

    def play(stage: Play) -> None:
        runner = Runner("resolver", "echo both > README && :")
        stage.settings = replace(stage.settings, runners={"resolver": runner}, resolver="resolver")
        act(stage)

    return play


def conflicting(stage: Play) -> None:
    """Two changes of one line."""
    stage.make_repository()
    begin(stage, stage.repo(verify="test -e README"), "a", "b", command="echo $HIVE_TASK > README")


def pushed_to(stage: Play) -> None:
    """A bare repository of the person's, which is pushed to."""
    stage.make_repository()
    stage.git("clone", "--quiet", "--bare", str(stage.app), str(stage.remote))
    begin(stage, replace(stage.repo(), path=str(stage.remote), publish="push"), "a", "b")
    play_until(stage, has_landed)


def checked_out(stage: Play) -> None:
    """A clean check-out of the person's, with files of theirs that git knows nothing of, which is to go forward."""
    stage.make_repository()
    (stage.app / "notes").write_text("mine\n")
    begin(stage, replace(stage.repo(), publish="checkout"), "a", "b")
    play_until(stage, has_landed)


def to_forward(stage: Play) -> None:
    checked_out(stage)
    play_until(stage, is_intended("publish"))


def go_forward(stage: Play) -> None:
    """Be the run that moves the check-out, in place of the nursery's child."""
    with stage.ledger() as ledger, ledger.read() as connection:
        repo = queries.list_repos(connection)[0]
    mirror = stage.places.mirror("app")
    os.environ.update(orders.CLEAN_ENVIRONMENT)
    assert forward.main(repo.path, str(mirror), str(repo.publishing), repo.branch) == 0


def handed_in(stage: Play) -> None:
    """A branch that a person made, of a repository the hive knows."""
    stage.make_repository()
    stage.git("switch", "--quiet", "--create", "feature")
    (stage.app / "feature.txt").write_text("feature\n")
    stage.git("add", "--all")
    stage.git("commit", "--quiet", "-m", "a feature")
    stage.git("switch", "--quiet", "main")
    begin(stage, stage.repo(), "a")
    play_until(stage, has_landed)


def bring(stage: Play) -> None:
    with stage.ledger() as ledger, ledger.write(ME) as tx:
        repo = queries.find_repo(tx.connection, "app")
        assert repo is not None
        submit_branch(tx, repo, "feature", stage.git("rev-parse", "feature"))
    stage.finish()


scenario(
    "train",
    "three changes as a train, one of which fails its gate",
    given=queued,
    act=run_train,
    planted=(
        Mutant(
            "failed tree taken for passed", "only what passed lands", pass_the_failed, shown="nobody verified its tree"
        ),
    ),
)
scenario(
    "mend",
    "a change that passes only with the one behind it",
    given=mended,
    act=run_train,
    is_sure=False,
    planted=(
        Mutant(
            "landed before what it was made on",
            "a change lands when everything before it has",
            land_out_of_order,
            shown="nobody verified its tree",
        ),
    ),
)
scenario("rebuild", "a change is put first while two are verified", given=verifying, act=overtake)
scenario(
    "settle",
    "a conflict goes to a resolver",
    given=conflicting,
    act=with_resolver(Play.finish),
    recover=with_resolver(Play.finish),
)
scenario("bring", "a branch is handed in by hand", given=handed_in, act=bring, recover=bring)
scenario("publish-push", "what landed is pushed to the person's branch", given=pushed_to, act=Play.finish)
scenario("publish-checkout", "what landed goes into the person's clean check-out", given=checked_out, act=Play.finish)
scenario("forward", "the run beside a check-out that goes forward", given=to_forward, act=go_forward)
scenario(
    "git-train", "git itself is struck while a train is verified and lands", given=queued, act=run_train, by_git=True
)
scenario(
    "git-settle",
    "git itself is struck while a conflict is settled",
    given=conflicting,
    act=with_resolver(Play.finish),
    recover=with_resolver(Play.finish),
    by_git=True,
)
scenario(
    "git-bring",
    "git itself is struck while a branch is brought",
    given=handed_in,
    act=bring,
    recover=bring,
    by_git=True,
)
scenario("git-push", "git itself is struck while it pushes", given=pushed_to, act=Play.finish, by_git=True)
scenario("git-checkout", "git itself is struck in a check-out", given=checked_out, act=Play.finish, by_git=True)
