"""Specifies how an agent program is started: its argv, the user's credentials, and its conversation."""

import hashlib
import os
import sys
import threading
import uuid
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from hivekeeper.domain.run import RunSpec
from hivekeeper.domain.runner import RUNNER_VARIABLE, Runner
from hivekeeper.places import Places

_SESSIONS = uuid.UUID("6f1e9c1e-8f5c-5c35-9e0a-5e1f3a1d7b52")


def start_program(spec: RunSpec, runner: Runner, run: str, session: str = "", *, resume: bool = False) -> RunSpec:
    """Make a spec start an agent program, as the run of this name."""
    if runner.chooses_session and not resume:
        session = str(uuid.uuid5(_SESSIONS, run))
    home = Path(os.path.expanduser("~"))  # noqa: PTH111 - pathlib raises for a user without a home
    signed = [home / path[2:] if path.startswith("~/") else Path(path) for path in runner.sign_in]
    mounts = spec.mounts or {}
    given = {**mounts, "read": [*mounts["read"], *(str(path) for path in signed if path.is_file())]}
    own = {"HIVE_HOME": str(home), RUNNER_VARIABLE: runner.name, **_find_python(runner)}
    return replace(
        spec,
        argv=runner.make_argv(session, resume=resume),
        environment={**spec.environment, **runner.environment, **own},
        mounts={**given, "inherit": list(runner.inherit)},
        runner=runner.name if runner.speaks else None,
        session=session or None,
    )


def _find_python(runner: Runner) -> dict[str, str]:
    """Name the interpreter that talks to an agent program for the hive."""
    return {"HIVE_PYTHON": sys.executable} if runner.acp else {}


def find_environment(spec: RunSpec, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a command: its spec's, and the variables it inherits from the keeper."""
    names = (spec.mounts or {}).get("inherit", ())
    return {**{name: environment[name] for name in names if name in environment}, **spec.environment}


def write_prompt(places: Places, words: str) -> Path:
    """Write a prompt file and return its path. The name is a hash of the text, so this is idempotent."""
    data = words.encode("utf-8", "surrogateescape")
    path = places.prompt(hashlib.sha256(data).hexdigest())
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{threading.get_native_id()}")
        draft.write_bytes(data)
        draft.replace(path)
    return path
