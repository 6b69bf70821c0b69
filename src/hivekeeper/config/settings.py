"""The hive's settings: `hive.toml` to one frozen value."""

import os
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, PlainValidator

from hivekeeper.config.located import Checked, Filled, Loc, Located, Problems, check, parse_toml, read_text
from hivekeeper.config.values import (
    BUILT_IN_RUNNERS,
    FILE_NAME,
    Patterns,
    Settings,
    read_count,
    read_duration,
    read_size,
    show,
)
from hivekeeper.domain.names import NAME_RULE, is_name
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.runner import PromptBy, Runner

MAX_BYTES = 1 << 20
# A keeper that is late once is busy; only one that misses two beats in a row may be taken for gone.
BEATS_BEFORE_ABANDONED = 2
STRENGTH = {"none": 0, "limits": 0, "landlock": 1, "namespaces": 2, "best": 2}

Seconds = Annotated[float, PlainValidator(read_duration)]
# "none" lifts a limit that a default would set; saying nothing keeps the default.
SecondsLimit = Annotated[float | None, PlainValidator(lambda value: None if value == "none" else read_duration(value))]
BytesLimit = Annotated[int | None, PlainValidator(lambda value: None if value == "none" else read_size(value))]
CountLimit = Annotated[int | None, PlainValidator(lambda value: None if value == "none" else read_count(value))]


def _make_absolute(path: str) -> str:
    found = os.path.expanduser(path)  # noqa: PTH111 - that of Path raises when there is no such user.
    if not found.startswith("/"):
        raise ValueError(f"must begin with '/' or '~'; it is {show(path)}")
    return os.path.normpath(found)


Absolute = Annotated[str, AfterValidator(_make_absolute)]


class _Hive(Checked):
    workers: Annotated[int, Field(ge=1, le=1000)] = Settings().workers
    archive_after: Seconds = Settings().archive_after_s


class _Keeper(Checked):
    heartbeat: Seconds = Settings().heartbeat_s
    abandoned_after: Seconds = Settings().abandoned_after_s
    poll: Seconds = Settings().poll_s
    preempt: Seconds = Settings().preempt_s


class _Limits(Checked):
    timeout: SecondsLimit = Limits().wall_s
    silence: SecondsLimit = Limits().silence_s
    output: BytesLimit = Limits().output_bytes
    memory: BytesLimit = Limits().memory_bytes
    processes: CountLimit = Limits().processes
    disk: BytesLimit = Limits().disk_bytes


class _Sandbox(Checked):
    level: Literal["best", "namespaces", "landlock", "limits"] = "best"
    require: Literal["none", "landlock", "namespaces"] = "none"
    read: list[Absolute] = Field(default_factory=list)
    write: list[Absolute] = Field(default_factory=list)
    pool: Annotated[int, Field(ge=0, le=100)] = Settings().pool
    snapshot_every: Seconds = Settings().snapshot_every_s
    reclaim_after: Seconds = Settings().reclaim_after_s


class _Runner(Checked):
    command: Filled
    prompt: Literal["file", "stdin", "argument"] = "file"


class _Patterns(Checked):
    queue: bool = Patterns().queue
    cleanup: bool = Patterns().cleanup
    convoys: bool = Patterns().convoys


class _File(Checked):
    hive: _Hive = _Hive()
    keeper: _Keeper = _Keeper()
    limits: _Limits = _Limits()
    sandbox: _Sandbox = _Sandbox()
    runners: dict[str, _Runner] = Field(default_factory=dict)
    patterns: _Patterns = _Patterns()


TABLES: dict[str, type[Checked]] = {
    "hive": _Hive,
    "keeper": _Keeper,
    "limits": _Limits,
    "sandbox": _Sandbox,
    "runners": _Runner,
    "patterns": _Patterns,
}


def _place(loc: Loc) -> tuple[str, type[Checked]]:
    match loc:
        case ("runners", name, *_):
            return f"[runners.{name if is_name(str(name)) else show(name)}]", _Runner
        case (str(table), *_) if table in TABLES:
            return f"[{table}]", TABLES[table]
    return "this file", _File


def load_settings(directory: Path) -> Settings:
    """Read a hive's settings; a hive without the file has the defaults. InputError names everything wrong with it."""
    path = directory / FILE_NAME
    problems = Problems(str(path), "nothing was done")
    try:
        text = read_text(path, problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        return Settings()
    located = parse_toml(text, problems)
    file = check(_File, located, problems, _place)
    if file:
        _check_keeper(file.keeper, located, problems)
        _check_sandbox(file.sandbox, located, problems)
        _check_runners(file.runners, located, problems)
    if file is None or problems.found:
        raise problems.error()
    limits, sandbox, keeper = file.limits, file.sandbox, file.keeper
    return Settings(
        workers=file.hive.workers,
        archive_after_s=file.hive.archive_after,
        heartbeat_s=keeper.heartbeat,
        abandoned_after_s=keeper.abandoned_after,
        poll_s=keeper.poll,
        preempt_s=keeper.preempt,
        limits=Limits(limits.timeout, limits.silence, limits.output, limits.memory, limits.processes, limits.disk),
        level=None if sandbox.level == "best" else sandbox.level,
        require=None if sandbox.require == "none" else sandbox.require,
        read=tuple(sandbox.read),
        write=tuple(sandbox.write),
        pool=sandbox.pool,
        snapshot_every_s=sandbox.snapshot_every,
        reclaim_after_s=sandbox.reclaim_after,
        runners={name: Runner(name, said.command, PromptBy(said.prompt)) for name, said in file.runners.items()},
        patterns=Patterns(**file.patterns.model_dump()),
    )


def _check_keeper(keeper: _Keeper, located: Located, problems: Problems) -> None:
    if keeper.abandoned_after < (least := BEATS_BEFORE_ABANDONED * keeper.heartbeat):
        key = "abandoned_after" if "abandoned_after" in keeper.model_fields_set else "heartbeat"
        said = f"{keeper.abandoned_after:g}s is less than {BEATS_BEFORE_ABANDONED} times 'heartbeat'"
        advice = f"make it at least {least:g}s, or 'heartbeat' shorter"
        problems.add(f"'abandoned_after' in [keeper]: {said}; {advice}", located.line(("keeper", key)))


def _check_sandbox(sandbox: _Sandbox, located: Located, problems: Problems) -> None:
    if STRENGTH[sandbox.level] < STRENGTH[sandbox.require]:
        said = f"'require' in [sandbox] asks for more than 'level', which is {show(sandbox.level)}"
        problems.add(f"{said}; make 'level' \"best\"", located.line(("sandbox", "require")))


def _check_runners(runners: dict[str, _Runner], located: Located, problems: Problems) -> None:
    for name, runner in runners.items():
        line = located.line(("runners", name))
        if not is_name(name):
            problems.add(f"the name of runner {show(name)} must be {NAME_RULE}", line)
        if name in BUILT_IN_RUNNERS:
            problems.add(f"the runner {show(name)} is built in; give yours another name", line)
        if runner.prompt == "stdin" and "{prompt}" in runner.command:
            said = f"'command' in [runners.{name}] holds {{prompt}}, but the prompt goes to its standard input"
            advice = 'remove it, or make \'prompt\' "file" or "argument"'
            problems.add(f"{said}; {advice}", located.line(("runners", name, "command")))
