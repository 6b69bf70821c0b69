"""Starting a keeper that outlives the terminal it was started from."""

import subprocess
from collections.abc import Sequence
from pathlib import Path


def start_detached(argv: Sequence[str], log: Path, directory: Path) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, with its words in a file."""
    with log.open("ab") as output:
        return subprocess.Popen(  # noqa: S603 - our own interpreter and our own module
            argv, cwd=directory, stdin=subprocess.DEVNULL, stdout=output, stderr=output, start_new_session=True
        )
