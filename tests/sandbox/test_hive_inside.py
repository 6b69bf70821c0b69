"""`hive` runs in every sandbox, on a mailbox and nothing else, wherever it is installed."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hivekeeper.places import Places
from hivekeeper.sandbox import toolchain
from tests.sandbox.prison import Prison


def _hive(prison: Prison, package: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Type a command inside, as the hive in a package has its workers type it."""
    for name in ("inbox/.done", "outbox/.sent"):
        (prison.own / "mail" / name).mkdir(parents=True, exist_ok=True)
    names = {
        "HIVE_MAILBOX": str(prison.own / "mail"),
        "HIVE_PYTHON": sys.executable,
        "PATH": f"{package / 'worker' / 'bin'}:{os.environ['PATH']}",
    }
    return prison.run("env", *(f"{name}={value}" for name, value in names.items()), "hive", *arguments)


def test_a_worker_sends_and_lists_mail_at_every_level(prison: Prison) -> None:
    package = Places(prison.root).worker_bin.parents[1]
    listed = _hive(prison, package, "mail", "ls")
    assert (listed.returncode, listed.stdout) == (0, "Your inbox is empty.\n"), listed.stderr
    refused = _hive(prison, package, "mail", "send", "b", "text", "--id", "../x")
    assert (refused.returncode, refused.stderr.partition("\n")[0]) == (
        2, "hive: '../x' cannot be the id of a message.",
    )  # fmt: skip


def test_a_hive_that_is_installed_below_a_hidden_home_is_the_one_that_its_workers_type(
    prison: Prison, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = prison.home / ".local" / "lib" / "site-packages" / "hivekeeper"
    package.parent.mkdir(parents=True)
    subprocess.run(("cp", "-r", str(Places(prison.root).worker_bin.parents[1]), str(package)), check=True)
    (package / "__init__.py").write_text('__version__ = "9.9.9"\n')
    monkeypatch.setattr(toolchain, "_PACKAGE", str(package))
    said = _hive(prison, package, "--version")
    assert said.stdout == "hive 9.9.9\n", said.stderr
