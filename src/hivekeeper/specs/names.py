"""Paths in a spec as names that any machine can resolve, so that an intent says the same wherever its hive lies."""

from collections.abc import Callable
from dataclasses import replace

from hivekeeper.domain.run import RunSpec
from hivekeeper.places import Places


def name_places(places: Places, spec: RunSpec) -> RunSpec:
    """Write the paths of a spec as names."""
    return _change(spec, places.name)


def resolve_places(places: Places, spec: RunSpec) -> RunSpec:
    """Write the names of a spec as paths of this machine."""
    return _change(spec, places.resolve)


def _change(spec: RunSpec, change: Callable[[str], str]) -> RunSpec:
    mounts = spec.mounts
    return replace(
        spec,
        argv=tuple(map(change, spec.argv)),
        directory=change(spec.directory),
        environment={name: change(value) for name, value in spec.environment.items()},
        mounts=None if mounts is None else {name: list(map(change, words)) for name, words in mounts.items()},
    )
