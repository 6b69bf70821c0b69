"""Rooms of tasks without a repository, each effect an argv for a run."""

import sys
from pathlib import Path

_COLLECT = Path(__file__).parent / "collect.py"


def make_room(room: Path) -> tuple[str, ...]:
    """Make a worker's room; what a killed run left there was never given to a worker."""
    script = 'rm -rf -- "$1" && mkdir -p -- "$1/work" "$1/home" "$1/tmp"'
    return ("sh", "-euc", script, "sh", str(room))


def collect_outputs(work: Path, kept: Path, target: Path | None, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Bring what was promised to where it belongs, whole or not at all; without a target only keep what there is."""
    return (sys.executable, "-I", "-S", str(_COLLECT), str(work), str(kept), str(target or ""), *outputs)
