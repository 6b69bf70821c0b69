"""Which paths a run may write, may read and must not see, decided for every isolation level in the same way.

Rules:
1. The deepest path that is named decides; at one path writing beats reading beats hiding. All else is read-only.
2. Everything is named by its real path. A link on the way that lies in a hidden place is laid out again there.
3. A mount that is reached through a link inside a writable one is left out: the link is a worker's, and following it
   would open whatever it points to.
4. Programs that lie in a hidden place come back read-only, except where a mount says something else.
"""

# ruff: noqa: PTH100, PTH115
# Asked at every start of a run: pathlib would cost more than everything else here.

import os
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import IntEnum

# Where people and programs leave what is nobody else's business: homes, scratch, and the sockets of services.
ALWAYS_HIDDEN = ("/root", "/home", "/tmp", "/var/tmp", "/run")  # noqa: S108 - named to be hidden, not to be used
_MAX_LINKS = 40  # as many as the kernel follows


class Mode(IntEnum):
    """What may be done at a path and below."""

    HIDE = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Traced:
    """A path with every link on the way followed, and those links with what they say."""

    real: str
    links: dict[str, str]


@dataclass(frozen=True, slots=True)
class Layout:
    """The named places by real path, and the links met on the way to them."""

    places: dict[str, Mode] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def mode_at(self, path: str) -> Mode:
        """Tell what may be done at a path: it itself or the nearest named place above it decides."""
        while path:
            if path in self.places:
                return self.places[path]
            path = path.rpartition("/")[0]
        return Mode.READ

    def mode_above(self, path: str) -> Mode:
        """Tell what could be done at a path if it were not named itself."""
        return self.mode_at(path.rpartition("/")[0])

    def name(self, traced: Traced, mode: Mode) -> None:
        """Name a place; the most that anybody allows there holds."""
        if traced.real != "/":  # a service's home may be that, and hiding it would leave nothing
            self.places[traced.real] = max(mode, self.places.get(traced.real, mode))
            self.links.update(traced.links)


def trace(path: str) -> Traced:
    """Follow every link of a path, also of one that does not exist."""
    real, links, followed = "", dict[str, str](), 0
    todo = os.path.abspath(path).split("/")[::-1]
    while todo:
        part = todo.pop()
        if part == "..":
            real = real.rpartition("/")[0]
        elif part not in ("", "."):
            here = f"{real}/{part}"
            target = _read_link(here) if followed < _MAX_LINKS else None
            if target is None:
                real = here
            else:
                links[here] = target
                followed += 1
                real = "" if target.startswith("/") else real
                todo += target.split("/")[::-1]
    return Traced(real or "/", links)


def lay_out(
    hide: Iterable[str], read: Iterable[str], write: Iterable[str], toolchain: Iterable[tuple[Traced, Mode]]
) -> Layout:
    """Decide what may be done where."""
    layout, writable = Layout(), list[str]()
    for path in sorted(write):  # so that a mount comes before those inside it
        traced = trace(path)
        if not _is_led_by_a_worker(traced, writable):
            writable.append(traced.real)
            layout.name(traced, Mode.WRITE)
    for mode, paths in ((Mode.HIDE, hide), (Mode.READ, read)):
        for path in paths:
            traced = trace(path)
            if os.path.lexists(traced.real) and not _is_led_by_a_worker(traced, writable):
                layout.name(traced, mode)
    for traced, mode in [found for found in toolchain if layout.mode_at(found[0].real) is Mode.HIDE]:
        layout.name(traced, mode)
    return layout


def is_within(path: str, place: str) -> bool:
    """Tell whether a path is a place or lies below it."""
    return path == place or path.startswith(f"{place}/")


def _is_led_by_a_worker(traced: Traced, writable: list[str]) -> bool:
    return any(is_within(link, place) for link in traced.links for place in writable)


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:  # no link, or nothing at all
        return None
