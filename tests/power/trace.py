"""Record with strace what a tree of processes does to a directory, and read the record as a list of operations.

Rules:
1. One log for all processes, in the order in which strace saw calls return: a call that another process interrupted
   in the log counts where it ended.
2. Strings and paths are in hexadecimal (-xx), so no file name and no data can be taken for the grammar of a line.
3. An open file is followed by its description (what `dup` and `fork` share), so that an operation names the file that
   was opened, whatever it is called by now; strace tells the path of each descriptor, which guards against confusion.
4. What cannot be replayed from the record (a shared writable mapping, data copied from outside) is refused aloud.
   SQLite's `-shm` file is not there at all: it is memory, and built anew after a crash.
"""

import os
import re
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.power.ops import (
    Acknowledge,
    Copy,
    Link,
    MakeDirectory,
    Op,
    Open,
    Remove,
    Rename,
    Resize,
    SetMode,
    Symlink,
    Sync,
    SyncAll,
    Write,
)

BIRTHS = ("clone", "clone3", "fork", "vfork")
CALLS = (
    *("open", "openat", "creat", "close", "dup", "dup2", "dup3", "fcntl", "lseek", "read", "readv", "mmap"),
    *("write", "pwrite64", "writev", "pwritev", "pwritev2", "copy_file_range", "sendfile", "sendto", "sendmsg"),
    *("truncate", "ftruncate", "fallocate", "chmod", "fchmod", "fchmodat"),
    *("fsync", "fdatasync", "sync", "syncfs", "sync_file_range"),
    *("rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "unlink", "unlinkat"),
    *("mkdir", "mkdirat", "rmdir", "chdir", "fchdir", *BIRTHS),
)
# Where another file may come from without any data in the record.
UNTOLD = "its content is not in the record"


class TraceError(Exception):
    """A record that cannot be replayed."""


def strace_argv(log: Path, pids: Sequence[int] = (), argv: Sequence[str] = ()) -> list[str]:
    """Tell how to start strace, either on processes that run already or with a command of its own.

    `read` is recorded raw, without its data: only how far it moved matters, and programs read far more than they write.
    """
    calls = ",".join(f"?{call}" for call in CALLS)
    options = [
        "-f",
        "-qq",
        "-y",
        "-xx",
        "-s",
        "9999999",
        "-e",
        f"trace={calls}",
        "-e",
        "raw=read,readv",
        "-o",
        str(log),
    ]
    attached = [part for pid in pids for part in ("-p", str(pid))]
    return ["strace", *options, *attached, *(["--", *argv] if argv else [])]


def record(argv: Sequence[str], root: Path, log: Path, *, acknowledged_through: Path | None = None) -> list[Op]:
    """Run a command in the directory it changes, to its good end, and tell what it did there."""
    subprocess.run(strace_argv(log, argv=argv), check=True, cwd=root, stdin=subprocess.DEVNULL)
    return parse_trace(log.read_text(), root, acknowledged_through)


def parse_trace(text: str, root: Path, acknowledged_through: Path | None = None) -> list[Op]:
    """Read a log of strace as what happened to the files under `root`, paths relative to it, and in which order.

    What went to `acknowledged_through`, a file outside, or a pipe or socket as strace calls it (`pipe:[17]`), is what
    was acknowledged.
    """
    calls = list(_join_lines(text))
    reader = _Reader(root, str(acknowledged_through), calls)
    for call in calls:
        reader.read(call)
    return reader.ops


@dataclass(frozen=True, slots=True)
class _Call:
    pid: int
    name: str
    text: str
    result: int
    returned: str

    @property
    def arguments(self) -> list[str]:
        return [found.strip() for found in _ARGUMENT.findall(self.text)]


_LINE = re.compile(r"(\d+) +(<\.\.\. \w+ resumed>)?(.*)")
_CALL = re.compile(r"(\w+)\((.*)\) += (0x[0-9a-f]+|-?\d+)(.*)")
_ARGUMENT = re.compile(r"\{[^}]*\}|\[[^\]]*\]|[^,\s\[{][^,\[{]*")
_DESCRIPTOR = re.compile(r"(-?\d+|AT_FDCWD)(?:<([^>]*)>)?(\(deleted\))?")
_STRING = re.compile(r'"([^"]*)"(\.\.\.)?')
_UNFINISHED = " <unfinished ...>"


def _join_lines(text: str) -> Iterator[_Call]:
    begun: dict[str, str] = {}
    for line in text.splitlines():
        matched = _LINE.fullmatch(line)
        if matched is None:
            raise TraceError(f"This is no line of strace: {line[:200]}")
        pid, resumed, rest = matched.groups()
        if rest.endswith(_UNFINISHED):
            begun[pid] = rest.removesuffix(_UNFINISHED)
            continue
        if resumed:
            rest = begun.pop(pid, "") + rest
        called = _CALL.fullmatch(rest)
        if called and not called[3].startswith("-"):
            yield _Call(int(pid), called[1], called[2], int(called[3], 0), called[4])


def _unhex(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _strings(text: str) -> list[bytes]:
    found = _STRING.findall(text)
    if any(cut for _, cut in found):
        raise TraceError("strace cut a string short")
    return [_unhex(hexadecimal) for hexadecimal, _ in found]


@dataclass(slots=True)
class _Description:
    """An open file as the kernel sees it: descriptors of several processes may share it, and its offset."""

    file: int
    paths: set[str]
    offset: int | None = None  # None: opened before the recording began; taken to stand at the end
    append: bool = False
    synchronous: bool = False

    @property
    def position(self) -> int | None:
        return None if self.append else self.offset


@dataclass(slots=True)
class _Where:
    path: str | None = None


@dataclass(slots=True)
class _Process:
    """What threads share and children inherit."""

    files: dict[int, _Description] = field(default_factory=dict)
    cwd: _Where = field(default_factory=_Where)


class _Processes:
    """Follows descriptors and working directories from process to process."""

    def __init__(self, root: Path, calls: Sequence[_Call]) -> None:
        self.ops: list[Op] = []
        self._roots = {str(root.absolute()), str(root.resolve())}
        self._births = {call.result: call for call in calls if call.name in BIRTHS}
        self._early: set[int] = set()
        # Processes that were there before: attached to, they are the threads of one.
        self._first = _Process()
        self._processes: dict[int, _Process] = {}
        self._process = self._first
        self._opened = 0
        self._moved: set[str] = set()

    def _enter(self, call: _Call) -> None:
        if call.pid not in self._processes:
            birth = self._births.get(call.pid)
            # A child may be heard of before the call that made it returns.
            self._processes[call.pid] = self._first if birth is None else self._inherit(birth)
            self._early.add(call.pid)
        self._process = self._processes[call.pid]

    def _inherit(self, birth: _Call) -> _Process:
        parent = self._processes.get(birth.pid, self._first)
        files = parent.files if "CLONE_FILES" in birth.text else dict(parent.files)
        return _Process(files, parent.cwd if "CLONE_FS" in birth.text else _Where(parent.cwd.path))

    def _bear(self, call: _Call) -> None:
        if call.result in self._early:
            self._early.discard(call.result)
        else:
            self._processes[call.result] = self._inherit(call)

    def _inside(self, path: str) -> str | None:
        """Find a path's name under the root; None is outside, or of no concern."""
        path = os.path.normpath(path)
        for root in self._roots:
            if path == root:
                return "."
            if path.startswith(root + "/"):
                return None if path.endswith("-shm") else path[len(root) + 1 :]
        return None

    def _paths(self, call: _Call) -> tuple[list[str | None], list[str]]:
        """Tell the paths a call names, each found from its directory, and the other arguments."""
        paths: list[str | None] = []
        rest: list[str] = []
        base = self._process.cwd.path
        for argument in call.arguments:
            if argument.startswith('"'):
                path = os.fsdecode(_strings(argument)[0])
                if base is None and not path.startswith("/"):
                    raise TraceError(f"{call.name} of {path}, and nobody knows the working directory")
                paths.append(self._inside(str(Path(base or "/", path))))
            elif (matched := _DESCRIPTOR.fullmatch(argument)) and matched[2]:
                base = os.fsdecode(_unhex(matched[2]))
                if matched[1] == "AT_FDCWD":
                    self._process.cwd.path = base
            else:
                rest.append(argument)
        return paths, rest

    def _describe(self, argument: str) -> _Description | None:
        """Find the open file behind a descriptor, if it is one under the root."""
        matched = _DESCRIPTOR.fullmatch(argument)
        path = self._inside(os.fsdecode(_unhex(matched[2]))) if matched and matched[2] else None
        if matched is None or path is None:
            return None
        number = int(matched[1])
        known = self._process.files.get(number)
        # A descriptor closed by `exec` or received through a socket leaves no word in the record. Its path tells,
        # unless the file was renamed, or a directory above it.
        if known and (matched[3] or path in known.paths or self._moved.intersection(path.split("/"))):
            known.paths.add(path)
            return known
        self._process.files[number] = self._new_description(path)
        return self._process.files[number]

    def _new_description(self, path: str, op: Open | None = None) -> _Description:
        self._opened += 1
        self.ops.append(op or Open(self._opened, path))
        return _Description(self._opened, {path})


class _Reader(_Processes):
    """Writes down the operation behind each call."""

    def __init__(self, root: Path, acknowledged_through: str, calls: Sequence[_Call]) -> None:
        super().__init__(root, calls)
        self._acknowledged_through = acknowledged_through
        self._readers = self._list_readers()

    def _list_readers(self) -> dict[str, Callable[[_Call], None]]:
        groups: dict[Callable[[_Call], None], tuple[str, ...]] = {
            self._open: ("open", "openat", "creat"),
            self._close: ("close",),
            self._duplicate: ("dup", "dup2", "dup3", "fcntl"),
            self._move: ("lseek", "read", "readv"),
            self._map: ("mmap",),
            self._write: ("write", "pwrite64", "writev", "pwritev", "pwritev2"),
            self._send: ("sendto", "sendmsg"),
            self._copy: ("copy_file_range", "sendfile"),
            self._change: ("truncate", "ftruncate", "fallocate", "chmod", "fchmod", "fchmodat"),
            self._sync: ("fsync", "fdatasync", "sync", "syncfs"),
            self._rename: ("rename", "renameat", "renameat2", "link", "linkat"),
            self._make: ("symlink", "symlinkat", "mkdir", "mkdirat"),
            self._remove: ("unlink", "unlinkat", "rmdir"),
            self._change_directory: ("chdir", "fchdir"),
            self._bear: BIRTHS,
        }
        return {name: reader for reader, names in groups.items() for name in names}

    def read(self, call: _Call) -> None:
        """Take the next call into account."""
        self._enter(call)
        if call.name in self._readers:
            self._readers[call.name](call)

    def _open(self, call: _Call) -> None:
        paths, rest = self._paths(call)
        flags = "O_CREAT|O_TRUNC" if call.name == "creat" else rest[0]
        self._process.files.pop(call.result, None)
        # Where the descriptor leads, past symbolic links; the name it was asked for if that is gone already.
        told = _DESCRIPTOR.fullmatch(f"{call.result}{call.returned}")
        path = self._inside(os.fsdecode(_unhex(told[2]))) if told and told[2] and not told[3] else paths[0]
        if path is None:
            return
        if "O_TMPFILE" in flags:
            raise TraceError(f"A file without a name was made in {path}: that cannot be followed")
        create = "O_CREAT" in flags
        op = Open(self._opened + 1, path, create, "O_TRUNC" in flags, int(rest[-1], 8) if create else 0)
        description = self._new_description(path, op)
        description.offset = 0
        description.append = "O_APPEND" in flags
        description.synchronous = "O_SYNC" in flags or "O_DSYNC" in flags
        self._process.files[call.result] = description

    def _close(self, call: _Call) -> None:
        number = _DESCRIPTOR.match(call.text)
        if number:
            self._process.files.pop(int(number[1]), None)

    def _duplicate(self, call: _Call) -> None:
        old, *rest = call.arguments
        if call.name == "fcntl" and not rest[0].startswith("F_DUPFD"):
            description = self._describe(old) if rest[0] == "F_SETFL" else None
            if description:
                description.append = "O_APPEND" in rest[1]
            return
        description = self._describe(old)
        self._process.files.pop(call.result, None)
        if description:
            self._process.files[call.result] = description

    def _move(self, call: _Call) -> None:
        if call.name == "lseek":
            description = self._describe(call.arguments[0])
            if description:
                description.offset = call.result
        else:
            read = self._process.files.get(int(call.arguments[0], 0))
            if read and read.offset is not None:
                read.offset += call.result

    def _map(self, call: _Call) -> None:
        _, _, protection, flags, descriptor, _ = call.arguments
        if "MAP_SHARED" in flags and "PROT_WRITE" in protection and (description := self._describe(descriptor)):
            raise TraceError(f"{sorted(description.paths)} is written through memory, which no record shows")

    def _change_directory(self, call: _Call) -> None:
        matched = _DESCRIPTOR.match(call.text)
        if matched and matched[2]:
            self._process.cwd.path = os.fsdecode(_unhex(matched[2]))
        else:
            path = os.fsdecode(_strings(call.text)[0])
            self._process.cwd.path = os.path.normpath(Path(self._process.cwd.path or "/", path))

    def _acknowledges(self, descriptor: str) -> bool:
        matched = _DESCRIPTOR.fullmatch(descriptor)
        return bool(matched and matched[2] and os.fsdecode(_unhex(matched[2])) == self._acknowledged_through)

    def _send(self, call: _Call) -> None:
        descriptor, *_ = call.arguments
        if self._acknowledges(descriptor):
            parts = re.findall(r'iov_base=("[^"]*")', call.text) or _STRING.findall(call.text)[:1]
            strings = [part if isinstance(part, str) else f'"{part[0]}"' for part in parts]
            self.ops.append(Acknowledge(b"".join(_strings("".join(strings)))[: call.result]))

    def _write(self, call: _Call) -> None:
        descriptor, strings, _, *rest = call.arguments
        acknowledges = self._acknowledges(descriptor)
        description = self._describe(descriptor)
        if not call.result or not (acknowledges or description):
            return
        data = b"".join(_strings(strings))[: call.result]
        if acknowledges:
            self.ops.append(Acknowledge(data))
        if description:
            explicit = int(rest[0]) if rest and rest[0] != "-1" else None
            offset = self._take_offset(description, explicit, call.result)
            self._add(description, Write(description.file, offset, data))
            if not description.synchronous and rest[1:] and "SYNC" in rest[1]:
                self.ops.append(Sync(description.file))

    def _take_offset(self, description: _Description, explicit: int | None, size: int) -> int | None:
        """Tell where bytes land, and move on; None is the end of the file."""
        position = description.position
        if explicit is not None:
            return None if description.append else explicit
        if position is not None:
            description.offset = position + size
        return position

    def _add(self, description: _Description, op: Op) -> None:
        self.ops.append(op)
        if description.synchronous:
            self.ops.append(Sync(description.file))

    def _copy(self, call: _Call) -> None:
        arguments = call.arguments
        if call.name == "sendfile":
            arguments = [arguments[1], arguments[2], arguments[0], "NULL"]
        into = self._describe(arguments[2])
        if not into or not call.result:
            return
        source = self._describe(arguments[0])
        if source is None:
            raise TraceError(f"Bytes were copied to {sorted(into.paths)} from outside: {UNTOLD}")
        starts = [int(found[0]) if (found := re.findall(r"\[(\d+)", text)) else None for text in arguments[1:4:2]]
        source_offset = starts[0] if starts[0] is not None else source.offset
        if source_offset is None:
            raise TraceError(f"Bytes were copied from {sorted(source.paths)}, and nobody knows from where in it")
        if starts[0] is None:
            source.offset = source_offset + call.result
        offset = self._take_offset(into, starts[1], call.result)
        self._add(into, Copy(into.file, offset, source.file, source_offset, call.result))

    def _change(self, call: _Call) -> None:
        if call.name in {"truncate", "chmod", "fchmodat"}:
            paths, rest = self._paths(call)
            description = None if paths[0] is None else self._new_description(paths[0])
        else:
            descriptor, *rest = call.arguments
            description = self._describe(descriptor)
        if description is None:
            return
        if "chmod" in call.name:
            self.ops.append(SetMode(description.file, int(rest[0], 8)))
        elif call.name != "fallocate":
            self._add(description, Resize(description.file, int(rest[0])))
        elif rest[0] == "0":
            self._add(description, Resize(description.file, int(rest[1]) + int(rest[2]), grow=True))
        elif rest[0] != "FALLOC_FL_KEEP_SIZE":
            raise TraceError(f"fallocate of {sorted(description.paths)} with {rest[0]} cannot be followed")

    def _sync(self, call: _Call) -> None:
        if call.name == "sync":
            self.ops.append(SyncAll())
        elif description := self._describe(call.arguments[0]):
            self.ops.append(SyncAll() if call.name == "syncfs" else Sync(description.file))

    def _rename(self, call: _Call) -> None:
        (old, new), rest = self._paths(call)
        if new is None:
            if old is not None and call.name.startswith("rename"):
                self.ops.append(Remove(old))
            return
        if old is None:
            raise TraceError(f"{new} came from outside: {UNTOLD}")
        exchange = "RENAME_EXCHANGE" in rest
        self._moved |= {Path(new).name, Path(old).name} if exchange else {Path(new).name}
        self.ops.append(Link(old, new) if call.name.startswith("link") else Rename(old, new, exchange))

    def _make(self, call: _Call) -> None:
        if call.name.startswith("symlink"):
            target, _, rest = call.text.partition(", ")
            paths, _ = self._paths(_Call(call.pid, call.name, rest, call.result, ""))
            if paths[0] is not None:
                self.ops.append(Symlink(paths[0], os.fsdecode(_strings(target)[0])))
        else:
            paths, rest_of = self._paths(call)
            if paths[0] is not None:
                self.ops.append(MakeDirectory(paths[0], int(rest_of[0], 8)))

    def _remove(self, call: _Call) -> None:
        paths, _ = self._paths(call)
        if paths[0] is not None:
            self.ops.append(Remove(paths[0]))
