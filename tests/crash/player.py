"""Plays points one after another: `python -m tests.crash.player DIRECTORY` reads lines, answers a JSON line each.

`list SCENARIO` lists a scenario's points, `recover SCENARIO` those of its recovery; any other line is a point to be
struck, as a failure prints it: `land/pwrite64:12`, `git-land/git=update-ref.1/rename:1`, `exit/write:4:EIO`,
`submit/fdatasync:2/pwrite64:7` (struck again while it is being recovered). With `--point POINT` it plays just that one,
and shows the log it left.
"""

import json
import shutil
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tests.budget import read_cpu_s
from tests.crash.scenarios import MUTANTS
from tests.crash.slot import Point, Slot
from tests.crash.tracing import parse_fault

MEMORY = Path("/dev/shm")  # noqa: S108 - kills do not depend on the disk, and memory is quick


def parse_point(text: str) -> Point:
    """Read a point back from its one line."""
    scenario, *parts = text.split("/")
    in_git = parts.pop(0).removeprefix("git=") if parts[0].startswith("git=") else ""
    return Point(scenario, parse_fault(parts[0]), parse_fault(parts[1]) if parts[1:] else None, in_git)


def make_place() -> Path:
    return Path(tempfile.mkdtemp(prefix="hive-crash-", dir=MEMORY if MEMORY.is_dir() else None))


def answer(slot: Slot, line: str) -> dict[str, Any]:
    command, _, name = line.partition(" ")
    match command:
        case "list":
            points = [str(point) for point in slot.list_points(name)]
            return {"points": points, "states": slot.states}
        case "recover":
            return {"points": [str(fault) for fault in slot.list_recovery_points(name)]}
        case _:
            return asdict(slot.strike(parse_point(line)))


def main() -> None:
    """Answer until standard input ends."""
    place = make_place()
    try:
        match sys.argv[1:]:
            case ["--point", point]:
                slot = Slot(place)
                verdict = slot.strike(parse_point(point))
                sys.stdout.write(f"{slot.stage.show()}\n\n{verdict.point}: {verdict.violations or 'well'}\n")
                sys.exit(1 if verdict.violations else 0)
            case ["--mutant", mutant]:
                MUTANTS[mutant].plant()
        slot = Slot(place)
        for line in sys.stdin:
            before = read_cpu_s()
            try:
                reply = answer(slot, line.strip())
            except Exception as error:  # noqa: BLE001 - whoever asked has to hear of it
                reply = {"problem": f"{type(error).__name__}: {error}"}
            sys.stdout.write(json.dumps({**reply, "cpu_s": read_cpu_s() - before}) + "\n")
            sys.stdout.flush()
    finally:
        shutil.rmtree(place, ignore_errors=True)


if __name__ == "__main__":
    main()
