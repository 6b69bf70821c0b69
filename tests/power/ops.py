"""What can happen to the files of a directory, one small value an operation; paths are relative to it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Open:
    """A file or directory is opened, or made; later operations know it by this number."""

    file: int
    path: str
    create: bool = False
    truncate: bool = False
    mode: int = 0o644


@dataclass(frozen=True, slots=True)
class Write:
    """Bytes at an offset; None is the end of the file."""

    file: int
    offset: int | None
    data: bytes


@dataclass(frozen=True, slots=True)
class Copy:
    """Bytes that the kernel took from another file."""

    file: int
    offset: int | None
    source: int
    source_offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Resize:
    """The file is cut or filled with zeros to a size; `grow` never cuts."""

    file: int
    size: int
    grow: bool = False


@dataclass(frozen=True, slots=True)
class SetMode:
    """The file has other permissions."""

    file: int
    mode: int


@dataclass(frozen=True, slots=True)
class Sync:
    """fsync or fdatasync of one file or directory."""

    file: int


@dataclass(frozen=True, slots=True)
class SyncAll:
    """Everything goes to the disk."""


@dataclass(frozen=True, slots=True)
class MakeDirectory:
    """A new, empty directory."""

    path: str
    mode: int


@dataclass(frozen=True, slots=True)
class Symlink:
    """A new symbolic link."""

    path: str
    target: str


@dataclass(frozen=True, slots=True)
class Link:
    """One more name for a file."""

    old: str
    new: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Another name in place of the first; an exchange gives each the other's."""

    old: str
    new: str
    exchange: bool = False


@dataclass(frozen=True, slots=True)
class Remove:
    """A name is gone: a file's or an empty directory's."""

    path: str


@dataclass(frozen=True, slots=True)
class Acknowledge:
    """Somebody outside was told this."""

    data: bytes


Op = (
    Open
    | Write
    | Copy
    | Resize
    | SetMode
    | Sync
    | SyncAll
    | MakeDirectory
    | Symlink
    | Link
    | Rename
    | Remove
    | Acknowledge
)
