"""The hive's settings: `hive.toml` to one frozen value."""

import os
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field, PlainValidator

from hivekeeper.config.located import Checked, Filled, Loc, Located, Problems, check, parse_toml, read_text, rule
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
from hivekeeper.domain.budget import MICRO, Cap
from hivekeeper.domain.names import NAME_RULE, is_name
from hivekeeper.domain.plan import Limits
from hivekeeper.domain.price import Price
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.runners import OUTPUTS, PRESETS
from hivekeeper.runners.command import SIGNS
from hivekeeper.runners.prices import PRICES

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


def _is_variable(text: str) -> bool:
    return re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text) is not None


def _is_pattern(text: str) -> bool:
    return "\n" not in text and "\0" not in text and not text.startswith(("!", "#"))


def _is_file_of_mine(text: str) -> bool:
    return text.startswith(("~/", "/")) and ".." not in text.split("/") and "\n" not in text


def _read_amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10**9:
        raise ValueError(f'must be dollars, or "none", not {show(value)}')
    return float(value)


def _read_tokens(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 0 < value <= 10**15:
        raise ValueError(f'must be a whole number, or "none", not {show(value)}')
    return value


class _Hive(Checked):
    workers: Annotated[int, Field(ge=1, le=1000)] = Settings().workers
    archive_after: Seconds = Settings().archive_after_s


class _Keeper(Checked):
    heartbeat: Seconds = Settings().heartbeat_s
    abandoned_after: Seconds = Settings().abandoned_after_s
    poll: Seconds = Settings().poll_s
    preempt: Seconds = Settings().preempt_s


class _Limits(Checked):
    timeout: SecondsLimit = Settings().limits.wall_s
    silence: SecondsLimit = Settings().limits.silence_s
    no_answer: SecondsLimit = Settings().no_answer_s
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


class _Queue(Checked):
    parallel: Annotated[int | None, PlainValidator(lambda value: None if value == "cores" else read_count(value))] = (
        None
    )
    gate_timeout: Seconds = Settings().gate_wall_s
    resolver: str = "none"


class _Budget(Checked):
    money: Annotated[float | None, PlainValidator(lambda value: None if value == "none" else _read_amount(value))] = (
        None
    )
    tokens: Annotated[int | None, PlainValidator(lambda value: None if value == "none" else _read_tokens(value))] = None


Dollars = Annotated[float, Field(ge=0, le=10**6)]


class _Price(Checked):
    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None

    def get(self) -> Price:
        """Give it as a value of ours."""
        return Price(self.input, self.output, self.cache_read, self.cache_write)


class _Runner(Checked):
    """What a runner's table may say; of a known program whatever it does not say is as it is."""

    like: str = ""
    command: Filled = ""
    prompt: Literal["file", "stdin", "argument"] = "file"
    resume: Filled = ""
    args: str = ""
    environment: dict[str, str] = Field(default_factory=dict)
    inherit: list[Annotated[str, rule(_is_variable, "must be the name of an environment variable")]] = Field(
        default_factory=list
    )
    sign_in: list[Annotated[str, rule(_is_file_of_mine, "must begin with '~/' or '/', without '..'")]] = Field(
        default_factory=list
    )
    ignore: list[Annotated[Filled, rule(_is_pattern, "must be a .gitignore pattern on one line")]] = Field(
        default_factory=list
    )
    output: str = ""
    signs: dict[str, Filled] = Field(default_factory=dict)
    mcp: dict[str, Annotated[list[Filled], Field(min_length=1)]] = Field(default_factory=dict)
    price: _Price | None = None


class _Patterns(Checked):
    queue: bool = Patterns().queue
    cleanup: bool = Patterns().cleanup
    convoys: bool = Patterns().convoys


class _File(Checked):
    hive: _Hive = _Hive()
    keeper: _Keeper = _Keeper()
    limits: _Limits = _Limits()
    sandbox: _Sandbox = _Sandbox()
    queue: _Queue = _Queue()
    budget: _Budget = _Budget()
    prices: dict[str, _Price] = Field(default_factory=dict)
    runners: dict[str, _Runner] = Field(default_factory=dict)
    patterns: _Patterns = _Patterns()


TABLES: dict[str, type[Checked]] = {
    "hive": _Hive,
    "keeper": _Keeper,
    "limits": _Limits,
    "sandbox": _Sandbox,
    "queue": _Queue,
    "budget": _Budget,
    "prices": _Price,
    "runners": _Runner,
    "patterns": _Patterns,
}


def _place(loc: Loc) -> tuple[str, type[Checked]]:
    match loc:
        case ("runners", name, "price", *_):
            return f"'price' in [runners.{name if is_name(str(name)) else show(name)}]", _Price
        case ("prices", name, *_):
            return f"{show(name)} in [prices]", _Price
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
        _check_resolver(file, located, problems)
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
        parallel=file.queue.parallel,
        gate_wall_s=file.queue.gate_timeout,
        resolver=None if file.queue.resolver == "none" else file.queue.resolver,
        runners=PRESETS | {name: _make_runner(name, said) for name, said in file.runners.items()},
        day=Cap(file.budget.tokens, None if file.budget.money is None else round(file.budget.money * MICRO)),
        no_answer_s=limits.no_answer,
        prices=PRICES | {name.casefold(): price.get() for name, price in file.prices.items()},
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


def _make_runner(name: str, said: _Runner) -> Runner:
    """Add what is said of a runner to what is known of it; whoever gives a command means that and nothing else."""
    known = PRESETS.get(said.like or ("" if said.command else name)) or Runner(name, "")
    fields = said.model_fields_set
    new: dict[str, Any] = {key: getattr(said, key) for key in ("command", "resume", "args", "output") if key in fields}
    if said.command and "resume" not in fields:
        new["resume"] = ""
    if "prompt" in fields or said.command:
        new["prompt"] = PromptBy(said.prompt)
    return replace(
        known,
        name=name,
        **new,
        environment={**known.environment, **said.environment},
        inherit=tuple(dict.fromkeys((*known.inherit, *said.inherit))),
        sign_in=tuple(said.sign_in) if "sign_in" in fields else known.sign_in,
        ignore=tuple(dict.fromkeys((*known.ignore, *said.ignore))),
        signs={**known.signs, **said.signs},
        servers={server: tuple(map(_expand, argv)) for server, argv in said.mcp.items()},
        price=said.price.get() if said.price else known.price,
    )


def _expand(word: str) -> str:
    """Write a path below the person's home in full: a worker has a home of its own."""
    return os.path.expanduser(word) if word.startswith("~/") else word  # noqa: PTH111 - as above


def _check_resolver(file: _File, located: Located, problems: Problems) -> None:
    known = (*PRESETS, *file.runners, *BUILT_IN_RUNNERS)
    if file.queue.resolver != "none" and file.queue.resolver not in known:
        said = f"'resolver' in [queue] is {show(file.queue.resolver)}, and there is no such runner"
        meant = problems.did_you_mean(file.queue.resolver, known)
        problems.add(f"{said}{meant}", located.line(("queue", "resolver")))


def _check_runners(runners: dict[str, _Runner], located: Located, problems: Problems) -> None:
    for name, runner in runners.items():
        for what, key in _find_wrong(name, runner, problems):
            problems.add(what, located.line(("runners", name, key) if key else ("runners", name)))


def _find_wrong(name: str, runner: _Runner, problems: Problems) -> Iterator[tuple[str, str]]:
    """Find what is wrong with a runner's table, each with the key it is about."""
    place = f"[runners.{name}]"
    if not is_name(name):
        yield f"the name of runner {show(name)} must be {NAME_RULE}", ""
    if name in BUILT_IN_RUNNERS:
        yield f"the runner {show(name)} is built in; give yours another name", ""
    if runner.like and runner.like not in PRESETS:
        yield (
            f"'like' in {place} is {show(runner.like)}, unknown{problems.did_you_mean(runner.like, PRESETS)}",
            "like",
        )
    elif not runner.command and not runner.like and name not in PRESETS:
        meant = problems.did_you_mean(name, PRESETS)
        yield f"{place} has no 'command', and no program of that name is known{meant or '; add it'}", ""
    if runner.prompt == "stdin" and "{prompt}" in runner.command:
        said = f"'command' in {place} holds {{prompt}}, but the prompt goes to its standard input"
        yield f'{said}; remove it, or make \'prompt\' "file" or "argument"', "command"
    if runner.output and runner.output not in OUTPUTS:
        yield f"'output' in {place} must be one of {', '.join(OUTPUTS)}, not {show(runner.output)}", "output"
    for sign, pattern in runner.signs.items():
        if sign not in SIGNS:
            yield f"unknown sign {show(sign)} in {place}{problems.did_you_mean(sign, SIGNS)}", "signs"
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"the sign {show(sign)} in {place} is no pattern: {error}", "signs"
