"""What every command begins with: which hive is meant, who is typing, and shared options."""

import getpass
import os
import socket
from pathlib import Path
from typing import Annotated

import typer

from hivekeeper.errors import InputError
from hivekeeper.hive import Hive, Records, find_root, open_hive, open_records
from hivekeeper.store.ledger import ByPerson

Json = Annotated[bool, typer.Option("--json", help="Output JSON.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it is recorded in the ledger.")]

NO_KEEPER = "The keeper is not running"
STILL_RUNNING = "the keeper is not running. Type: hive up  (or, to end all workers now: hive down --workers)"


_named: list[str] = []


def enter(directory: Path) -> None:
    """Work as if started in a directory, and remember that it was named."""
    try:
        os.chdir(directory)
    except OSError as error:
        raise InputError(f"{directory}: {error.strerror}.", advice="-C takes an existing directory.") from None
    _named[:] = [str(Path.cwd())]


def forget_named() -> None:
    """Begin another command, for which no directory is named yet."""
    _named.clear()


def find_named() -> str | None:
    """Find the directory named for this command; None if the person is in it."""
    return next(iter(_named), None)


def find_here() -> Path:
    """Find the hive: the one that HIVE_DIR names, else that of this directory or of one above it."""
    named = os.environ.get("HIVE_DIR")
    if not named:
        return find_root(Path.cwd())
    if not (Path(named) / ".hive").is_dir():
        advice = "HIVE_DIR names it; correct it, or type: unset HIVE_DIR"
        raise InputError(f"There is no hive in {named}.", advice=advice)
    return Path(named)


def open_here() -> Hive:
    """Open the hive, with its settings."""
    return open_hive(find_here())


def read_here() -> Records:
    """Open the hive's ledger; its settings are not read."""
    return open_records(find_here())


def me() -> ByPerson:
    """Name who is typing, for the ledger."""
    return ByPerson(f"{getpass.getuser()} on {socket.gethostname()}")
