"""A hotfix while workers are at work: it lands first, everybody is told, and what lands later is merged with it."""

from hivekeeper.commands.queue import submit_branch
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.mail_row import MailRow
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.protocol import PRIORITY_MERGE
from hivekeeper.domain.rows import MergeRow
from hivekeeper.domain.states import ConvoyState, MailState, TaskState
from hivekeeper.merging.entries import Entry, find_hotfix_notices
from hivekeeper.store import queries
from hivekeeper.views.status import show_status
from tests.scenarios.conftest import Scene
from tests.scenarios.letters import AGENT
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


def test_a_worker_is_not_to_rebase_over_what_others_landed_nor_over_what_its_clone_has(
    stage: Scene, repository: Repository
) -> None:
    """One began before the file was changed by another, one when the hotfix was there."""
    go = stage.root.parent / "go"
    repository.commit({"shared": "one\n\ntwo\n"}, "second")
    old, new = (TaskSpec(name, f"echo {name} > {name}; until test -e '{go}'; do sleep 0.02; done", repo="app")
                for name in ("OLD", "NEW"))  # fmt: skip
    stage.submit(old, TaskSpec("OTHER", "sed -i s/two/TWO/ shared", repo="app"), repos=(repository.spec(),))
    stage.step_until(lambda: _has_changed(stage, "OLD") and stage.task("OTHER").state is TaskState.COMPLETE)
    repository.git("checkout", "--quiet", "-b", "fix")
    repository.commit({"shared": "ONE\n\ntwo\n"}, "fix it")
    repository.git("checkout", "--quiet", "main")
    with stage.hive.ledger.write(ME) as tx:
        fix = submit_branch(tx, stage.repo(), "fix", repository.git("rev-parse", "fix"), is_hotfix=True).task
    stage.step_until(lambda: stage.task(fix.partition("/")[2], "queue").state is TaskState.COMPLETE)
    (told,) = _list_told(stage, "OLD")
    assert (told["must_rebase"], told["touched"], told["paths"]) == (False, [], ["shared"])
    stage.submit(new, convoy="late")
    stage.step_until((stage.hive.places.sandbox("late/NEW", 1) / "work" / "NEW").exists)
    with stage.hive.ledger.read() as connection:
        (row,) = queries.list_rows(connection, MergeRow, "task", task=fix)
        (attempt,), task = queries.list_attempts_of_task(connection, fix), queries.find_task(connection, fix)
        assert task is not None
        entry = Entry(row, task, attempt, stage.repo(), ())
        notices = find_hotfix_notices(connection, stage.hive.places, entry, ("shared",))
    assert [(task.id, body["touched"]) for task, _, body in notices] == [("OLD", [])]
    go.touch()
    assert stage.finish() is ConvoyState.COMPLETE


REBASE = """
while True:
    told = receive()
    if told["type"] != "PRIORITY_MERGE":
        continue
    body = told["payload"]
    if body["must_rebase"]:
        ack(told)
        while not pathlib.Path(GO).exists():
            time.sleep(0.02)
        subprocess.run(f"git add -A && git commit -qm work; git fetch -q origin && git rebase -q {body['commit']}",
                       shell=True, check=True)
    else:
        ack(told)
    break
while not pathlib.Path(END).exists():
    time.sleep(0.02)
"""


def test_twenty_workers_are_told_of_a_hotfix_all_acknowledge_and_those_it_touches_rebase(
    stage: Scene, repository: Repository
) -> None:
    go, end = stage.root.parent / "go", stage.root.parent / "end"
    names, touching = [f"T{number}" for number in range(20)], {"T3", "T9", "T17"}
    repository.commit({"shared": "one\ntwo\nthree\nfour\nfive\n", "other": "x\n"}, "second")
    begin = f"import subprocess\nGO, END = {str(go)!r}, {str(end)!r}\ndef ack(told):\n"
    begin += "    send('ack.json', type='ACK', to='queue', in_reply_to=told['id'])\n"
    change = "pathlib.Path(os.environ['HIVE_TASK']).write_text('x')\n"
    sed = "s = pathlib.Path('shared'); s.write_text(s.read_text().replace('five', 'FIVE'))\n"
    stage.submit(
        *(TaskSpec(name, AGENT % (begin + change + sed * (name in touching) + REBASE), repo="app") for name in names),
        repos=(repository.spec(verify="true"),),
    )
    stage.take(workers=21)
    stage.step_until(lambda: all(_has_changed(stage, name) for name in names))
    repository.git("checkout", "--quiet", "-b", "fix")
    repository.commit({"shared": "ONE\ntwo\nthree\nfour\nfive\n"}, "fix it")
    repository.git("checkout", "--quiet", "main")
    with stage.hive.ledger.write(ME) as tx:
        submit_branch(tx, stage.repo(), "fix", repository.git("rev-parse", "fix"), is_hotfix=True)
    stage.step_until(lambda: len(_find(stage, type="ACK")) == len(names))
    assert {row.state for row in _find(stage, type="ACK")} == {MailState.HANDLED}
    notices = {row.task: row for row in _find(stage, type=PRIORITY_MERGE)}
    waiting = {f"work/{name}" for name in touching}
    assert {task for task, row in notices.items() if row.is_open} == waiting, "a word is no evidence"
    assert _list_late(stage) == []
    stage.clock.advance(601)
    assert _list_late(stage) == sorted(waiting)
    go.touch()
    stage.step_until(lambda: not any(row.is_open for row in _find(stage, type=PRIORITY_MERGE)))
    reasons = {row.reason for row in _find(stage, type=PRIORITY_MERGE) if row.task in waiting}
    assert reasons == {"its clone contains the hotfix"}
    assert _list_late(stage) == []
    end.touch()
    assert stage.finish() is ConvoyState.COMPLETE
    assert repository.git("show", "hive/main:shared") == "ONE\ntwo\nthree\nfour\nFIVE"
    assert not any(len(stage.attempts(name)) > 1 for name in names), "nobody had to do it again"


def _has_changed(stage: Scene, name: str) -> bool:
    return (stage.hive.places.sandbox(f"work/{name}", 1) / "work" / name).exists()


def _find(stage: Scene, **asked: str) -> list[MailRow]:
    with stage.hive.ledger.read() as connection:
        return queries.list_rows(connection, MailRow, "seq", **asked)


def _list_late(stage: Scene) -> list[str]:
    with stage.hive.ledger.read() as connection:
        view = show_status(connection, KeeperState.ACTIVE, now=stage.clock.now())
    late = (need["what"] for need in view["needs_me"] if "has not rebased onto the hotfix" in need["what"])
    return sorted(what.partition("(")[2].partition(")")[0] for what in late)


def _is_working(stage: Scene, task: str) -> bool:
    # What it does first has been done once its sandbox is not as it was.
    work = stage.hive.places.sandbox(f"work/{task}", 1) / "work"
    name, word = ("shared", "FIVE") if task == "TOUCHES" else ("other", "y")
    return (work / name).exists() and word in (work / name).read_text()


def _list_told(stage: Scene, task: str) -> list[dict[str, object]]:
    with stage.hive.ledger.read() as connection:
        messages = queries.list_mail(connection, f"work/{task}", 1)
    return [message.get_payload() for message in messages if message.type == PRIORITY_MERGE]
