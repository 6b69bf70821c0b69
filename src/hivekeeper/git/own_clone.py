"""What a worker asks of its own clone, inside its sandbox."""

import subprocess
from pathlib import Path


def has_changes(clone: Path, start: str = "") -> bool | None:
    """Whether a clone differs from what it was made from: what had landed, or `start`, an earlier attempt's work.

    None when git cannot tell: it is no clone, or a damaged one.
    """
    status = _ask(clone, "status", "--porcelain", "--untracked-files=normal")
    tree = _ask(clone, "rev-parse", "HEAD^{tree}")
    landed = _ask(clone, "for-each-ref", "--format=%(objectname)", "refs/remotes/origin")
    if status is None or tree is None or not landed:
        return None
    if status:
        return True
    bases = [base for tip in landed.splitlines() if (base := _ask(clone, "merge-base", "HEAD", tip))]
    return tree not in {_ask(clone, "rev-parse", f"{base}^{{tree}}") for base in (*bases, *filter(None, (start,)))}


def _ask(clone: Path, *arguments: str) -> str | None:
    argv = ("git", "-C", str(clone), *arguments)
    try:
        said = subprocess.run(argv, capture_output=True, check=False)  # noqa: S603 - git, by the worker's own path
    except OSError:
        return None
    return said.stdout.decode("utf-8", "replace").strip() if said.returncode == 0 else None
