"""Holds in words: what waits and why, and the command that ends a wait which no time ends."""

from hivekeeper.domain import run
from hivekeeper.domain.hive_rows import HoldRow
from hivekeeper.domain.report import Outcome

_SENTENCES = {
    Outcome.RATE_LIMITED: "{name} is rate-limited",
    Outcome.QUOTA: "{name} has used up its quota",
    Outcome.NO_ANSWER: "the model of {name} does not answer",
    Outcome.SERVER_ERROR: "the model's service failed for {name}",
    Outcome.AUTH: "{name} is not signed in",
    Outcome.SETUP: "{name} could not start",
    "missing": "{name} cannot be started",
    run.HELP: "{name} waits for help",
}


def describe_hold(scope: str, name: str, cause: str, until: str | None, why: str) -> str:
    """Say what waits, until when and why."""
    sentence = _SENTENCES.get(cause, "{name}" if scope == "day" else "{scope} {name}").format(scope=scope, name=name)
    return f"{sentence}{f' until {until}' if until else ''}: {why}"


def find_command(hold: HoldRow) -> str:
    """Find the command that ends a hold."""
    match hold.scope, hold.cause:
        case "repo", _:
            return f"hive runner trust {hold.name}"
        case _, run.HELP:
            return "hive mail inbox  (and reply)"
        case _, "budget":
            return f"hive budget raise {hold.name} --money DOLLARS  (or --tokens)"
        case _, Outcome.AUTH:
            return f"hive runner resume {hold.name}  (once it is signed in)"
        case _, Outcome.SETUP:
            return f"hive runner resume {hold.name}  (once hive runner test {hold.name} works)"
        case _:
            return f"hive runner resume {hold.name}  (once that is done)"
