"""The hive's settings: `hive.toml` to one frozen value."""

import os
import re
from collections.abc import Iterator
from dataclasses import Field as Declared
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_type_hints

from pydantic import AfterValidator, Field, PlainValidator, create_model

from hivekeeper.config.located import Checked, Filled, Loc, Located, Problems, check, parse_toml, read_text, rule
from hivekeeper.config.values import FILE_NAME, read_duration, read_size, read_whole
from hivekeeper.domain.names import NAME_RULE, is_name, show
from hivekeeper.domain.price import Price
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.runners import OUTPUTS, PRESETS
from hivekeeper.runners.command import SIGNS
from hivekeeper.runners.prices import PRICES
from hivekeeper.settings import BUILT_IN_RUNNERS, Said, Settings, key_of, list_settings
from hivekeeper.settings import TABLES as DECLARED

MAX_BYTES = 1 << 20
# The tables as hive.toml has them: those whose keys are the person's own come before the last.
ORDER = (*list(DECLARED)[:-1], "prices", "runners", *list(DECLARED)[-1:])
# A keeper that is late once is busy; only one that misses two beats in a row may be taken for gone.
BEATS_BEFORE_ABANDONED = 2
LEVELS = {"limits": 0, "landlock": 1, "namespaces": 2}

Seconds = Annotated[float, PlainValidator(read_duration)]
# "none" lifts a limit that a default would set; saying nothing keeps the default.
SecondsLimit = Annotated[float | None, PlainValidator(lambda value: None if value == "none" else read_duration(value))]
BytesLimit = Annotated[int | None, PlainValidator(lambda value: None if value == "none" else read_size(value))]
CountLimit = Annotated[
    int | None, PlainValidator(lambda value: None if value == "none" else read_whole(value, 1, 1_000_000))
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


def _is_file_of_mine(text: str) -> bool:
    return text.startswith(("~/", "/")) and ".." not in text.split("/") and "\n" not in text


def _read_amount(value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value <= 10**9:
        raise ValueError(f'must be dollars, or "none", not {show(value)}')
    return float(value)


def _make_table(table: str) -> type[Checked]:
    """Make the model of a table from the settings that are declared for it."""
    hints = get_type_hints(Settings)
    keys: dict[str, Any] = {
        key_of(each): (_find_type(each, said, hints[each.name]), each.default)
        for each, said in list_settings()
        if said.table == table
    }
    return create_model(f"_{table.title()}", __base__=Checked, **keys)


def _find_type(each: Declared[Any], said: Said, hint: Any) -> Any:  # noqa: ANN401 - types are what it is about
    """Find what a value of a setting must be."""
    kinds = {option for option in get_args(hint) if option is not NoneType} or {hint}
    if said.choices:
        return Annotated[Literal[(said.word, *said.choices)], AfterValidator(lambda value: _or_none(value, said.word))]
    if kinds == {float} or each.name.endswith("_bytes") or (kinds == {int} and said.word):
        return Annotated[hint, PlainValidator(lambda value: _read(each, said, value))]
    if kinds == {int}:
        return Annotated[int, Field(ge=said.least, le=said.most)]
    if kinds == {str}:
        return Annotated[str, AfterValidator(lambda value: _or_none(value, said.word))]
    return hint if kinds == {bool} else list[Absolute]


def _or_none(value: object, word: str) -> object:
    return None if word and value == word else value


def _read(each: Declared[Any], said: Said, value: object) -> float | int | None:
    if said.word and value == said.word:
        return None
    if each.name.endswith("_s"):
        return read_duration(value)
    if each.name.endswith("_bytes"):
        return read_size(value)
    if said.most is not None:
        return read_whole(value, said.least or 0, said.most)
    return _read_amount(value)


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


TABLES: dict[str, type[Checked]] = {table: _make_table(table) for table in DECLARED}
_PARTS: dict[str, Any] = {table: (model, model()) for table, model in TABLES.items()}
_PARTS |= {"prices": (dict[str, _Price], {}), "runners": (dict[str, _Runner], {})}
_File = create_model("_File", __base__=Checked, **{table: _PARTS[table] for table in ORDER})
TABLES |= {"prices": _Price, "runners": _Runner}


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
    file: Any = check(_File, located, problems, _place)
    if file:
        _check_keeper(file.keeper, located, problems)
        _check_sandbox(file.sandbox, located, problems)
        _check_runners(file.runners, located, problems)
        _check_resolver(file, located, problems)
    if file is None or problems.found:
        raise problems.error()
    values: dict[str, Any] = {}
    for each, said in list_settings():
        value = getattr(getattr(file, said.table), key_of(each))
        values[each.name] = tuple(value) if isinstance(value, list) else value
    return Settings(
        **values,
        runners=PRESETS | {name: _make_runner(name, said) for name, said in file.runners.items()},
        prices=PRICES | {name.casefold(): price.get() for name, price in file.prices.items()},
    )


def _check_keeper(keeper: Any, located: Located, problems: Problems) -> None:  # noqa: ANN401 - a model made above
    if keeper.abandoned_after < (least := BEATS_BEFORE_ABANDONED * keeper.heartbeat):
        key = "abandoned_after" if "abandoned_after" in keeper.model_fields_set else "heartbeat"
        said = f"{keeper.abandoned_after:g}s is less than {BEATS_BEFORE_ABANDONED} times 'heartbeat'"
        advice = f"make it at least {least:g}s, or 'heartbeat' shorter"
        problems.add(f"'abandoned_after' in [keeper]: {said}; {advice}", located.line(("keeper", key)))


def _check_sandbox(sandbox: Any, located: Located, problems: Problems) -> None:  # noqa: ANN401 - as above
    if LEVELS[sandbox.level or "namespaces"] < LEVELS[sandbox.require or "limits"]:
        said = f"'require' in [sandbox] asks for more than 'level', which is {show(sandbox.level or 'best')}"
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


def _check_resolver(file: Any, located: Located, problems: Problems) -> None:  # noqa: ANN401 - as above
    known = (*PRESETS, *file.runners, *BUILT_IN_RUNNERS)
    if file.queue.resolver is not None and file.queue.resolver not in known:
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
