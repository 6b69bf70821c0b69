"""Sandboxes of tasks without a repository, each effect an argv for a run."""

import shlex
import sys
from collections.abc import Sequence
from pathlib import Path

_COLLECT = Path(__file__).parent / "collect.py"
_SESSION_LOG = Path(__file__).parent / "session_log.py"


def make_sandbox_dir(sandbox: Path) -> tuple[str, ...]:
    """Make a worker's sandbox; what a killed run left there was never given to a worker."""
    script = 'rm -rf -- "$1" && mkdir -p -- "$1/work" "$1/home" "$1/tmp" "$1/mail/inbox/.done" "$1/mail/outbox/.sent"'
    return ("sh", "-euc", script, "sh", str(sandbox))


def collect_outputs(work: Path, kept: Path, target: Path | None, outputs: tuple[str, ...]) -> tuple[str, ...]:
    """Bring what was promised to where it belongs, whole or not at all; without a target only keep what there is."""
    return (sys.executable, "-I", "-S", str(_COLLECT), str(work), str(kept), str(target or ""), *outputs)


def remove_sandbox(sandbox: Path, gate: Path, kept: Path, logs: Sequence[str]) -> tuple[str, ...]:
    """Remove a worker's sandbox, whatever it has made of its permissions; first keep what its program wrote down."""
    # A log that cannot be kept is no reason to fill the disk.
    keep = f'"$1" -I -S "$2" "$4" "$3" {shlex.join(logs)} || :\n' if logs else ""
    script = 'rm -rf -- "$@" 2>/dev/null || { chmod -R u+rwX -- "$@" 2>/dev/null; rm -rf -- "$@"; }'
    own = (sys.executable, str(_SESSION_LOG), str(kept))
    return ("sh", "-c", f"{keep}shift 3\n{script}", "sh", *own, str(sandbox), str(gate))
