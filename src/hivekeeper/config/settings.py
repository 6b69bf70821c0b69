"""The hive's settings: `hive.toml` to one frozen value."""

from pathlib import Path
from typing import Annotated

from pydantic import Field, PlainValidator

from hivekeeper.config.located import Checked, Loc, Problems, check, parse_toml, read_text
from hivekeeper.config.values import FILE_NAME, Settings, read_duration, read_size
from hivekeeper.domain.plan import Limits

MAX_BYTES = 1 << 20
# A keeper that is late once is busy; only one that misses two beats in a row may be taken for gone.
BEATS_BEFORE_ABANDONED = 2

Seconds = Annotated[float, PlainValidator(read_duration)]
# "none" lifts a limit that a default would set; saying nothing keeps the default.
SecondsLimit = Annotated[float | None, PlainValidator(lambda value: None if value == "none" else read_duration(value))]
BytesLimit = Annotated[int | None, PlainValidator(lambda value: None if value == "none" else read_size(value))]


class _Hive(Checked):
    workers: Annotated[int, Field(ge=1, le=1000)] = Settings().workers
    archive_after: Seconds = Settings().archive_after_s


class _Keeper(Checked):
    heartbeat: Seconds = Settings().heartbeat_s
    abandoned_after: Seconds = Settings().abandoned_after_s
    poll: Seconds = Settings().poll_s


class _Limits(Checked):
    timeout: SecondsLimit = Limits().wall_s
    silence: SecondsLimit = Limits().silence_s
    output: BytesLimit = Limits().output_bytes
    memory: BytesLimit = Limits().memory_bytes


class _File(Checked):
    hive: _Hive = _Hive()
    keeper: _Keeper = _Keeper()
    limits: _Limits = _Limits()


def _place(loc: Loc) -> tuple[str, type[Checked]]:
    tables: dict[Loc, type[Checked]] = {("hive",): _Hive, ("keeper",): _Keeper, ("limits",): _Limits}
    return (f"[{loc[0]}]", tables[loc]) if loc in tables else ("this file", _File)


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
    if file and file.keeper.abandoned_after < (least := BEATS_BEFORE_ABANDONED * file.keeper.heartbeat):
        key = "abandoned_after" if "abandoned_after" in file.keeper.model_fields_set else "heartbeat"
        said = f"{file.keeper.abandoned_after:g}s is less than {BEATS_BEFORE_ABANDONED} times 'heartbeat'"
        advice = f"make it at least {least:g}s, or 'heartbeat' shorter"
        problems.add(f"'abandoned_after' in [keeper]: {said}; {advice}", located.line(("keeper", key)))
    if file is None or problems.found:
        raise problems.error()
    limits = file.limits
    return Settings(
        workers=file.hive.workers,
        archive_after_s=file.hive.archive_after,
        heartbeat_s=file.keeper.heartbeat,
        abandoned_after_s=file.keeper.abandoned_after,
        poll_s=file.keeper.poll,
        limits=Limits(limits.timeout, limits.silence, limits.output, limits.memory),
    )
