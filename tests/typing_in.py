"""Commands as a person types them: in this process where another proves nothing, which saves an interpreter each."""

import io
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest

from hivekeeper.cli import main

KEEPERS = ("run", "up", "demo", "rehearse")  # each in a process of its own, like `plan --run`


def type_in(
    arguments: Sequence[str], cwd: Path, *, timeout_s: float, environment: Mapping[str, str] | None = None
) -> tuple[int, str]:
    """Type a command; give its exit code and all it said."""
    if arguments[0] in KEEPERS or "--run" in arguments:
        return _start(arguments, cwd, timeout_s, environment)
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.chdir(cwd)
        patch.setattr(sys, "argv", ["hive", *arguments])
        if environment is not None:
            for name in os.environ.keys() - environment.keys():
                patch.delenv(name)
            for name, value in environment.items():
                patch.setenv(name, value)
        try:
            main()
        except SystemExit as end:
            code = end.code
        else:
            code = 0
    return int(code or 0), out.getvalue() + err.getvalue()


def _start(
    arguments: Sequence[str], cwd: Path, timeout_s: float, environment: Mapping[str, str] | None
) -> tuple[int, str]:
    argv = (sys.executable, "-m", "hivekeeper", *arguments)
    done = subprocess.run(
        argv, cwd=cwd, env=environment, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    return done.returncode, done.stdout + done.stderr
