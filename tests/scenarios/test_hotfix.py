"""A hotfix while workers are at work: it lands first, everybody is told, and what lands later is merged with it."""

from hivekeeper.commands.queue import submit_branch
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.protocol import PRIORITY_MERGE
from hivekeeper.domain.states import ConvoyState, TaskState
from hivekeeper.store import queries
from tests.scenarios.conftest import Scene
from tests.stage import ME, Repository


def test_a_hotfix_lands_while_workers_work_and_tells_each_whether_it_must_rebase(
    stage: Scene, repository: Repository
) -> None:
    go = stage.root.parent / "go"
    wait = f"while ! test -e '{go}'; do sleep 0.02; done"
    repository.commit({"shared": "one\ntwo\nthree\nfour\nfive\n", "other": "x\n"}, "second")
    stage.submit(
        TaskSpec("TOUCHES", f"sed -i s/five/FIVE/ shared; {wait}", repo="app"),
        TaskSpec("APART", f"echo y >> other; {wait}", repo="app"),
        repos=(repository.spec(verify="test -e shared && ! grep -q broken shared"),),
    )
    stage.step_until(lambda: all(_is_working(stage, task) for task in ("TOUCHES", "APART")))
    repository.git("checkout", "--quiet", "-b", "fix")
    repository.commit({"shared": "ONE\ntwo\nthree\nfour\nfive\n"}, "fix it")
    repository.git("checkout", "--quiet", "main")
    with stage.hive.ledger.write(ME) as tx:
        fix = submit_branch(tx, stage.repo(), "fix", repository.git("rev-parse", "fix"), is_hotfix=True).task
    stage.step_until(lambda: stage.task(fix.partition("/")[2], "queue").state is TaskState.COMPLETE)
    bodies = {task: _list_told(stage, task) for task in ("TOUCHES", "APART")}
    assert [(body["must_rebase"], body["touched"], body["paths"]) for body in bodies["TOUCHES"]] == [
        (True, ["shared"], ["shared"])
    ]
    assert [(body["must_rebase"], body["touched"]) for body in bodies["APART"]] == [(False, [])]
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("show", "hive/main:shared") == "ONE\ntwo\nthree\nfour\nFIVE"
    assert len(repository.landed()) == 3


def _is_working(stage: Scene, task: str) -> bool:
    # What it does first has been done once its sandbox is not as it was.
    work = stage.hive.places.sandbox(f"work/{task}", 1) / "work"
    name, word = ("shared", "FIVE") if task == "TOUCHES" else ("other", "y")
    return (work / name).exists() and word in (work / name).read_text()


def _list_told(stage: Scene, task: str) -> list[dict[str, object]]:
    with stage.hive.ledger.read() as connection:
        messages = queries.list_mail(connection, f"work/{task}", 1)
    return [message.get_payload() for message in messages if message.type == PRIORITY_MERGE]
