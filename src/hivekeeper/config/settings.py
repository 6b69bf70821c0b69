"""The hive's settings: `hive.toml` to one frozen value."""

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import Field as Declared
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from pydantic import AfterValidator, Field, PlainValidator, WithJsonSchema, create_model

from hivekeeper.config.located import (
    Checked,
    Filled,
    Listed,
    Loc,
    Problems,
    check,
    parse_toml,
    read_text,
    rule,
)
from hivekeeper.config.mail_types import MailType, find_type_problems, make_protocol
from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.config.values import (
    DURATION_SCHEMA,
    FILE_NAME,
    SIZE_SCHEMA,
    describe_limit,
    describe_whole,
    read_duration,
    read_size,
    read_whole,
)
from hivekeeper.domain.names import NAME_RULE, is_name, show
from hivekeeper.domain.price import Price
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.errors import InputError
from hivekeeper.runners import OUTPUTS, PRESETS
from hivekeeper.runners.acp import COMMANDS, speak_acp
from hivekeeper.runners.command import SIGNS
from hivekeeper.runners.prices import PRICES
from hivekeeper.sandbox.isolation import Level
from hivekeeper.settings import BUILT_IN_RUNNERS, Setting, Settings, key_of, list_settings
from hivekeeper.settings import TABLES as DECLARED

MAX_BYTES = 1 << 20
MOST_PROCESSES = 1_000_000
MOST_DOLLARS = 10**9
# The tables in the order of hive.toml: those with names of your own come before the last.
ORDER = (*list(DECLARED)[:-1], "prices", "runners", *list(DECLARED)[-1:])
# A keeper that is late once is busy; only one that misses two heartbeats in a row may be replaced.
BEATS_BEFORE_ABANDONED = 2


def _unless_none(read: Callable[[object], object]) -> PlainValidator:
    """Read a limit; "none" lifts one that a default would set."""
    return PlainValidator(lambda value: None if value == "none" else read(value))


SecondsLimit = Annotated[float | None, _unless_none(read_duration), WithJsonSchema(describe_limit(DURATION_SCHEMA))]
BytesLimit = Annotated[int | None, _unless_none(read_size), WithJsonSchema(describe_limit(SIZE_SCHEMA))]
CountLimit = Annotated[
    int | None,
    _unless_none(lambda value: read_whole(value, 1, MOST_PROCESSES)),
    WithJsonSchema(describe_limit(describe_whole(1, MOST_PROCESSES))),
]


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


def _is_own_file(text: str) -> bool:
    return text.startswith(("~/", "/")) and ".." not in text.split("/") and "\n" not in text


def _read_amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= MOST_DOLLARS:
        raise ValueError(f'must be dollars, or "none", not {show(value)}')
    return float(value)


def _make_table(table: str) -> type[Checked]:
    """Make the model of a table from the settings that are declared for it."""
    hints = get_type_hints(Settings)
    keys: dict[str, Any] = {
        key_of(each): (_find_type(each, how, hints[each.name]), each.default)
        for each, how in list_settings()
        if how.table == table
    }
    return create_model(f"_{table.title()}", __base__=Checked, **keys)


def _find_type(each: Declared[Any], how: Setting, hint: Any) -> Any:  # noqa: ANN401 - types are what it is about
    """Find the type of a setting's value."""
    if hint is bool:
        return hint
    if get_origin(hint) is tuple:
        return Listed[Absolute]
    if str in get_args(hint):
        text = Literal[(how.word, *how.choices)] if how.choices else str
        return Annotated[text, AfterValidator(lambda value: None if value == how.word else value)]
    schema = _describe_number(each, how)
    schema = describe_limit(schema, how.word) if how.word else schema
    return Annotated[hint, PlainValidator(lambda value: _read_number(each, how, value)), WithJsonSchema(schema)]


def _read_number(each: Declared[Any], how: Setting, value: object) -> float | int | None:
    if how.word and value == how.word:
        return None
    if each.name.endswith("_s"):
        return read_duration(value)
    if each.name.endswith("_bytes"):
        return read_size(value)
    return _read_amount(value) if how.most is None else read_whole(value, how.least or 0, how.most)


def _describe_number(each: Declared[Any], how: Setting) -> dict[str, Any]:
    """Describe as a JSON Schema what `_read_number` reads."""
    if each.name.endswith("_s"):
        return DURATION_SCHEMA
    if each.name.endswith("_bytes"):
        return SIZE_SCHEMA
    if how.most is None:
        return {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_DOLLARS}
    return describe_whole(how.least or 0, how.most)


Dollars = Annotated[float, Field(ge=0, le=10**6)]


class _Price(Checked):
    input: Dollars
    output: Dollars
    cache_read: Dollars | None = None
    cache_write: Dollars | None = None


class _Runner(Checked):
    """A runner's table; for a known program, what it does not say stays as known."""

    like: str = ""
    command: Filled = ""
    acp: Filled = ""
    via: Literal["command", "acp"] = "command"
    prompt: Literal["file", "stdin", "argument"] = "file"
    resume: Filled = ""
    args: str = ""
    environment: dict[str, str] = Field(default_factory=dict)
    inherit: Listed[Annotated[str, rule(_is_variable, "must be the name of an environment variable")]] = ()
    sign_in: Listed[Annotated[str, rule(_is_own_file, "must begin with '~/' or '/', without '..'")]] = ()
    ignore: Listed[Annotated[Filled, rule(_is_pattern, "must be a .gitignore pattern on one line")]] = ()
    output: str = ""
    signs: dict[str, Filled] = Field(default_factory=dict)
    mcp: dict[str, Annotated[list[Filled], Field(min_length=1)]] = Field(default_factory=dict)
    price: _Price | None = None


TABLES: dict[str, type[Checked]] = {table: _make_table(table) for table in DECLARED}
_types: Any = (dict[str, MailType], {})
TABLES["mail"] = create_model("_Mail", __base__=TABLES["mail"], types=_types)
_PARTS: dict[str, Any] = {table: (model, model()) for table, model in TABLES.items()}
_PARTS |= {"prices": (dict[str, _Price], {}), "runners": (dict[str, _Runner], {})}
File = create_model("File", __base__=Checked, **{table: _PARTS[table] for table in ORDER})
TABLES |= {"prices": _Price, "runners": _Runner}


def _place(loc: Loc) -> tuple[str, type[Checked]]:
    match loc:
        case ("prices", name, *_):
            return f"{show(name)} in [prices]", _Price
        case ("runners", name, *rest):
            where = f"[runners.{name if is_name(str(name)) else show(name)}]"
            return (f"'price' in {where}", _Price) if rest[:1] == ["price"] else (where, _Runner)
        case ("mail", "types", str(name), *_):
            return f"[mail.types.{name}]", MailType
        case (str(table), *_) if table in TABLES:
            return f"[{table}]", TABLES[table]
    return "this file", File


def ensure_file(directory: Path) -> None:
    """Write hive.toml with its defaults where it is missing, and refuse one that is a link.

    Tasks that work in the hive's directory see a plain file read-only; a missing one, or a link, they could replace.
    """
    path = directory / FILE_NAME
    if path.is_symlink():
        what = f"{path} is a link, which a task that works in the hive's directory could replace."
        quoted = shlex.quote(str(path))
        advice = f'Make it a file: cp --remove-destination "$(readlink -f {quoted})" {quoted}'
        raise InputError(what, advice=advice)
    # Where we may not write, or only as much as a name, tasks cannot replace it either.
    with suppress(OSError), path.open("x", encoding="utf-8") as file:
        file.write(DEFAULT_TOML)


def load_settings(directory: Path) -> Settings:
    """Read a hive's settings; a hive without the file has the defaults. InputError names everything wrong with it."""
    path = directory / FILE_NAME
    problems = Problems(str(path), "nothing was done")
    try:
        text = read_text(path, problems, max_bytes=MAX_BYTES)
    except FileNotFoundError:
        return Settings()
    located = parse_toml(text, problems)
    file: Any = check(File, located, problems, _place)
    for place, what in _find_problems(file, problems) if file else ():
        problems.add(what, located.line(place))
    if file is None or problems.found:
        raise problems.error()
    values = {each.name: getattr(getattr(file, how.table), key_of(each)) for each, how in list_settings()}
    protocol = make_protocol(file.mail.types)
    limits: dict[str, Any] = {
        "urgent": [type_.name for type_ in protocol.values() if type_.is_urgent],
        "silence_s": values["no_answer_s"],
        "tool_s": values["silence_s"],
    }
    return Settings(
        **values,
        runners=PRESETS | {name: _make_runner(name, table, limits) for name, table in file.runners.items()},
        protocol=protocol,
        prices=PRICES | {name.casefold(): Price(**price.model_dump()) for name, price in file.prices.items()},
    )


def _find_problems(file: Any, problems: Problems) -> Iterator[tuple[Loc, str]]:  # noqa: ANN401 - a model made above
    """Find settings that contradict each other or name what is not there, each with its place."""
    keeper, sandbox, resolver = file.keeper, file.sandbox, file.queue.resolver
    if keeper.abandoned_after < (least := BEATS_BEFORE_ABANDONED * keeper.heartbeat):
        key = "abandoned_after" if "abandoned_after" in keeper.model_fields_set else "heartbeat"
        said = f"{keeper.abandoned_after:g}s is less than {BEATS_BEFORE_ABANDONED} times 'heartbeat'"
        advice = f"make it at least {least:g}s, or 'heartbeat' shorter"
        yield ("keeper", key), f"'abandoned_after' in [keeper]: {said}; {advice}"
    if Level(sandbox.level or "namespaces").rank < Level(sandbox.require or "limits").rank:
        said = f"'require' in [sandbox] asks for more than 'level', which is {show(sandbox.level or 'best')}"
        yield ("sandbox", "require"), f"{said}; make 'level' \"best\""
    known = (*PRESETS, *file.runners, *BUILT_IN_RUNNERS)
    if resolver is not None and resolver not in known:
        said = f"'resolver' in [queue] is {show(resolver)}, and there is no such runner"
        yield ("queue", "resolver"), f"{said}{problems.did_you_mean(resolver, known)}"
    for name, type_ in file.mail.types.items():
        for what, *where in find_type_problems(name, type_, problems):
            yield ("mail", "types", name, *where), what
    for name, runner in file.runners.items():
        for what, *where in _find_runner_problems(name, runner, problems):
            yield ("runners", name, *where), what


def _make_runner(name: str, table: _Runner, limits: Mapping[str, Any]) -> Runner:
    """Add a runner's table to what is known of it; a `command` of its own replaces the known command line.

    One that speaks the Agent Client Protocol has its mail and its limits handled by the process that talks to it.
    """
    known = PRESETS.get(table.like or ("" if table.command else name)) or Runner(name, "")
    new = table.model_dump(include={"command", "resume", "args", "output", "sign_in"}, exclude_unset=True)
    if table.command:
        new.setdefault("resume", "")
    if table.command or "prompt" in table.model_fields_set:
        new["prompt"] = PromptBy(table.prompt)
    made = replace(
        known,
        name=name,
        **new,
        environment={**known.environment, **table.environment},
        inherit=tuple(dict.fromkeys((*known.inherit, *table.inherit))),
        ignore=tuple(dict.fromkeys((*known.ignore, *table.ignore))),
        signs={**known.signs, **table.signs},
        servers={server: tuple(map(_expand, argv)) for server, argv in table.mcp.items()},
        price=Price(**table.price.model_dump()) if table.price else known.price,
    )
    command = table.acp or (COMMANDS[table.like or name] if table.via == "acp" else "")
    return speak_acp(made, command, **limits) if command else made


def _expand(word: str) -> str:
    """Write a path below the person's home in full: a worker has a home of its own."""
    return os.path.expanduser(word) if word.startswith("~/") else word  # noqa: PTH111 - as above


def _find_runner_problems(name: str, runner: _Runner, problems: Problems) -> Iterator[tuple[str, ...]]:
    """Find what is wrong with a runner's table: a sentence, and the key it is about if there is one."""
    place = f"[runners.{name}]"
    if not is_name(name):
        yield (f"the name of runner {show(name)} must be {NAME_RULE}",)
    if name in BUILT_IN_RUNNERS:
        yield (f"the runner {show(name)} is built in; give yours another name",)
    if runner.like and runner.like not in PRESETS:
        meant = problems.did_you_mean(runner.like, PRESETS)
        yield f"'like' in {place} is {show(runner.like)}, which is not a known program{meant}", "like"
    elif not (runner.command or runner.acp) and not runner.like and name not in PRESETS:
        meant = problems.did_you_mean(name, PRESETS)
        yield (f"{place} has no 'command', and no program of that name is known{meant or '; add it'}",)
    yield from _find_acp_problems(name, runner)
    if runner.prompt == "stdin" and "{prompt}" in runner.command:
        said = f"'command' in {place} contains {{prompt}}, but the prompt goes to its standard input"
        yield f'{said}; remove it, or make \'prompt\' "file" or "argument"', "command"
    if runner.output and runner.output not in OUTPUTS:
        yield f"'output' in {place} must be one of {', '.join(OUTPUTS)}, not {show(runner.output)}", "output"
    for sign, pattern in runner.signs.items():
        if sign not in SIGNS:
            yield f"unknown sign {show(sign)} in {place}{problems.did_you_mean(sign, SIGNS)}", "signs"
        try:
            re.compile(pattern)
        except re.error as error:
            yield f"the sign {show(sign)} in {place} is not a pattern: {error}", "signs"


def _find_acp_problems(name: str, runner: _Runner) -> Iterator[tuple[str, ...]]:
    """Find what is wrong with how a runner is driven over the Agent Client Protocol."""
    place = f"[runners.{name}]"
    if not runner.acp and runner.via != "acp":
        return
    way = "acp" if runner.acp else "via"
    for key in ("command", "prompt", "resume", "output", "signs"):
        if key in runner.model_fields_set:
            said = f"'{key}' in {place} is for a program that is driven by its command line"
            yield f"{said}; remove it, or '{way}'", key
    if "{" in runner.acp:
        yield f"'acp' in {place} contains '{{'; the prompt and the session go over the protocol", "acp"
    if runner.via == "acp" and not runner.acp and (runner.like or name) not in COMMANDS:
        yield f"'via' in {place}: acp is known for {', '.join(COMMANDS)}; for another program, write 'acp'", "via"
