"""Scenarios of sessions: a usage limit parks an attempt, a person lets it go on, and its session is resumed."""

from dataclasses import replace

from hivekeeper.commands.sessions import lift_hold
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.runner import Runner
from hivekeeper.keeper.keeper import Keeper
from tests.crash.playing import is_ready, play_until, scenario
from tests.crash.stage import Play
from tests.stage import ME

# It makes half of its work and is limited; resumed, it makes the whole of what it had left.
BEGIN = "{mark}; echo half > $HIVE_TASK.txt; echo session s-1; echo slow down; : {{prompt}}"
GO_ON = "grep -q half $HIVE_TASK.txt && echo $HIVE_TASK > $HIVE_TASK.txt && echo well done {session}; : {prompt}"
SIGNS = {"session": r"^session (\S+)", "rate-limited": "^slow down", "done": "^well done s-1"}


def asked(stage: Play) -> None:
    """A prompt for a program that is going to be limited."""
    stage.make_repository()
    stage.make_hive()
    hire(stage)
    stage.submit(TaskSpec("a", repo="app", prompt="Do it.", runner="agent"), repos=(stage.repo(),))
    play_until(stage, is_ready)


def hire(stage: Play) -> None:
    runner = Runner("agent", BEGIN.format(mark=stage.mark), resume=GO_ON, signs=SIGNS)
    stage.settings = replace(stage.settings, runners={"agent": runner})


def let_go_on(stage: Play) -> None:
    """Keep the hive, and say of whoever is limited that it may go on."""
    hire(stage)

    def is_over(keeper: Keeper) -> bool:
        with keeper.hive.ledger.write(ME) as tx:
            lift_hold(tx, "runner", "agent", why="it may")
        return stage.is_settled(keeper)

    play_until(stage, is_over)


scenario("limit", "a session is limited, parked and resumed", given=asked, act=let_go_on, recover=let_go_on)
