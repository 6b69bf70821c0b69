"""What every command begins with: the hive a person stands in, who they are, and how they want to be told."""

import getpass
import socket
from pathlib import Path
from typing import Annotated

import typer

from hivekeeper.keeper.keeper import Hive, find_root, open_hive
from hivekeeper.store.ledger import ByPerson

Json = Annotated[bool, typer.Option("--json", help="Print what programs read.")]
Reason = Annotated[str, typer.Option("--reason", help="Why; it goes into the ledger.")]


def open_here() -> Hive:
    """Open the hive of this directory, or of one above it."""
    return open_hive(find_root(Path.cwd()))


def me() -> ByPerson:
    """Tell who is typing, for the record."""
    return ByPerson(f"{getpass.getuser()} on {socket.gethostname()}")
