"""Symbolic paths in specs, so that an intent stays valid when the hive is moved or on another machine."""

from collections.abc import Callable
from dataclasses import replace

from hivekeeper.domain.run import RunSpec
from hivekeeper.places import Places


def name_places(places: Places, spec: RunSpec) -> RunSpec:
    """Replace the paths of a spec by symbolic ones."""
    return _change(spec, places.name)


def resolve_places(places: Places, spec: RunSpec) -> RunSpec:
    """Replace the symbolic paths of a spec by this machine's paths."""
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
