"""Every state in which a power cut could have left a directory, from a list of what was done to it.

Rules:
1. A file's writes are durable at its fsync, its names too, with the directories newly made above them: a journal does
   that. A directory's fsync makes durable what happened to names in it. Everything else may be lost.
2. A change of names is there or is not, as a whole. One that is lost takes those with it that build on it: later
   changes of the same name, and in a directory that it made.
3. After each operation the cut may have left: all of it; only what is durable; all, the last write half done; all but
   one single change that is not durable; all, with zeros where the newest file's content would be.
4. A tree is told once for each thing acknowledged: the same files may be right before a promise and wrong after it.
"""

import os
import shutil
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from operator import itemgetter
from pathlib import Path
from typing import assert_never

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
from tests.power.tree import Directory, File, Node, SymbolicLink, Tree, digest_entry, zeros

UMASK = 0o022


class UnknownFileError(Exception):
    """An operation on a file that is not in the tree: it was there before, and the tree was loaded too late."""


@dataclass(frozen=True, slots=True)
class State:
    """One way the disk may look after the cut, and what had been promised by then.

    A label like `17-dropped-3` reads: after operation 17, without operation 3.
    """

    label: str
    tree: Tree
    acknowledged: bytes
    digest: int
    links: Mapping[str, str] = field(default_factory=dict)  # further names of a file, each with the first one


class Disk:
    """A directory that becomes one state after the other; only what differs is written.

    What a recovery changed in between is found by its inode and its time of change, which is set to an odd moment here.
    Not found is what was written through memory, on tmpfs; SQLite does that to its `-shm` alone, which is removed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._moment = time.time_ns() - 10**9
        self._written: dict[str, tuple[File, int]] = {}
        root.mkdir(parents=True, exist_ok=True)

    def become(self, state: State) -> None:
        """Hold exactly this tree."""
        kept = set(self._clear("", state.tree))
        for path, node in state.tree.items():
            if path not in kept and path not in state.links:
                self._make(path, node)
        for path, first in state.links.items():
            (self._root / path).unlink(missing_ok=True)
            (self._root / path).hardlink_to(self._root / first)

    def _clear(self, prefix: str, tree: Tree) -> Iterator[str]:
        """Remove what is not of the tree; tell what may stay."""
        with os.scandir(self._root / prefix) as found:
            entries = list(found)
        for entry in entries:
            path = prefix + entry.name
            if entry.is_dir(follow_symlinks=False):
                if isinstance(tree.get(path), Directory):
                    yield path
                    yield from self._clear(f"{path}/", tree)
                else:
                    shutil.rmtree(entry.path)
            elif self._is_as_written(path, entry.stat(follow_symlinks=False), tree.get(path)):
                yield path
            else:
                Path(entry.path).unlink()

    def _is_as_written(self, path: str, found: os.stat_result, node: Node | None) -> bool:
        if not isinstance(node, File) or self._written.get(path) != (node, found.st_ino):
            return False
        return found.st_mtime_ns == self._moment and stat.S_IMODE(found.st_mode) == node.mode

    def _make(self, name: str, node: Node) -> None:
        path = self._root / name
        match node:
            case Directory():
                path.mkdir()
                path.chmod(node.mode | stat.S_IRWXU)
            case SymbolicLink():
                path.symlink_to(node.target)
            case File():
                path.write_bytes(node.content)
                path.chmod(node.mode)
                os.utime(path, ns=(self._moment, self._moment))
                self._written[name] = node, path.stat().st_ino
            case _:
                assert_never(node)


def list_labels(start: Tree, ops: Sequence[Op], last: int | None = None) -> list[str]:
    """Name every state there may be, without making any; a few of them turn out to be like others, or not to be."""
    model = _Model(start, len(ops) if last is None else last)
    return [
        f"{index}-{label}" for index, op in enumerate(ops) if model.apply(index, op) for label, _ in model.outcomes()
    ]


def enumerate_states(
    start: Tree, ops: Sequence[Op], last: int | None = None, chosen: Collection[str] | None = None
) -> Iterator[State]:
    """Make each state a cut could have left, at any moment of these operations, or those with the chosen labels.

    Without a single fsync there are as many states as pairs of operations; `last` drops only the last so many of
    those that are not durable.
    """
    model = _Model(start, len(ops) if last is None else last)
    seen: set[tuple[int, int]] = set()
    for index, op in enumerate(ops):
        if not model.apply(index, op):
            continue
        for label, make in model.outcomes():
            name = f"{index}-{label}"
            if (chosen is not None and name not in chosen) or (outcome := make()) is None:
                continue
            key = outcome.digest, len(model.acknowledged)
            if key not in seen:
                seen.add(key)
                yield State(name, outcome.make_tree(), model.acknowledged, outcome.digest, outcome.list_links())


def replay(start: Tree, ops: Sequence[Op]) -> Tree:
    """Tell what there is in the end if nothing is lost: what the directory must hold, or the record is misread."""
    model = _Model(start, 0)
    for index, op in enumerate(ops):
        model.apply(index, op)
    return model.view.make_outcome().make_tree()


@dataclass(slots=True, eq=False)
class _Inode:
    """A file, directory or link, whatever its names: as it is, and as the disk holds it for certain."""

    node: Node
    durable: Node
    entries: "dict[str, _Inode]" = field(default_factory=dict)
    durable_entries: "dict[str, _Inode]" = field(default_factory=dict)
    changes: "list[_Change]" = field(default_factory=list)

    @property
    def file(self) -> File:
        assert isinstance(self.node, File)
        return self.node


@dataclass(slots=True)
class _Change:
    """A change of content that is not durable, with the file as it would be without it, or with half of it."""

    index: int
    without: File
    half: File | None


@dataclass(frozen=True, slots=True)
class _Slot:
    """One name in one directory, and what it led to before and after."""

    directory: _Inode
    name: str
    before: _Inode | None
    after: _Inode | None


@dataclass(frozen=True, slots=True)
class _Step:
    """A change of names that is not durable."""

    index: int
    slots: tuple[_Slot, ...]


@dataclass(frozen=True, slots=True)
class _Outcome:
    """A tree that is made when it is wanted: another one with some nodes replaced."""

    digest: int
    base: dict[str, Node]
    paths: "Mapping[_Inode, list[str]]"
    replaced: Mapping[str, Node] = field(default_factory=dict)

    def make_tree(self) -> Tree:
        return {**self.base, **self.replaced}

    def list_links(self) -> dict[str, str]:
        return {path: paths[0] for paths in self.paths.values() for path in paths[1:]}


_Make = Callable[[], _Outcome | None]  # None when nobody would see a difference


class _View:
    """A whole tree with its digest and the paths of each inode."""

    def __init__(self, root: _Inode, *, durable: bool, instead: Mapping[_Inode, Mapping[str, _Inode | None]]) -> None:
        self.tree: dict[str, Node] = {}
        self.digest = 0
        self.paths: dict[_Inode, list[str]] = {}
        waiting = [("", root)]
        while waiting:
            prefix, directory = waiting.pop()
            entries: Mapping[str, _Inode | None] = directory.durable_entries if durable else directory.entries
            if directory in instead:
                entries = {**entries, **instead[directory]}
            for name, inode in entries.items():
                if inode is not None:
                    path = prefix + name
                    self._put(path, inode.durable if durable else inode.node)
                    self.paths.setdefault(inode, []).append(path)
                    if isinstance(inode.node, Directory):
                        waiting.append((f"{path}/", inode))

    def _put(self, path: str, node: Node) -> None:
        self.tree[path] = node
        self.digest += digest_entry(path, node)

    def replace(self, inode: _Inode, node: Node) -> _Outcome:
        """Tell of the tree with another content of one file."""
        replaced = dict.fromkeys(self.paths.get(inode, ()), node)
        digest = self.digest
        for path in replaced:
            digest += digest_entry(path, node) - digest_entry(path, self.tree[path])
        return _Outcome(digest, self.tree, self.paths, replaced)

    def make_outcome(self) -> _Outcome:
        """Tell of the tree as it is."""
        return _Outcome(self.digest, self.tree, self.paths)

    def settle(self, outcome: _Outcome) -> None:
        """Become that tree."""
        self.tree.update(outcome.replaced)
        self.digest = outcome.digest


class _Model:
    """A directory as programs see it, and what of it would survive."""

    def __init__(self, start: Tree, most: int) -> None:
        self.acknowledged = b""
        self._most = most
        self._root = _Inode(Directory(), Directory())
        self._files: dict[int, _Inode | None] = {}
        self._dirty: dict[_Inode, None] = {}
        self._steps: list[_Step] = []
        self._newest: _Inode | None = None
        self._last: _Change | None = None
        for path, node in start.items():
            directory, name = self._locate(path)
            inode = _Inode(node, node)
            directory.entries[name] = directory.durable_entries[name] = inode
        self._view: _View | None = None
        self._durable_view: _View | None = None

    @property
    def view(self) -> _View:
        """The tree as programs see it, made when somebody asks."""
        self._view = self._view or self._look()
        return self._view

    def _look(
        self, *, durable: bool = False, instead: Mapping[_Inode, Mapping[str, _Inode | None]] | None = None
    ) -> _View:
        return _View(self._root, durable=durable, instead=instead or {})

    def _locate(self, path: str) -> tuple[_Inode, str]:
        """Find the directory of a path, through symbolic links, and the name in it."""
        above, name = os.path.split(path)
        return self._get(above), name

    def _get(self, path: str) -> _Inode:
        """Give what is at a path, through symbolic links on the way to it."""
        if path in {"", "."}:
            return self._root
        above, name = os.path.split(path)
        inode = self._get(above).entries.get(name)
        if inode is None:
            raise UnknownFileError(f"Nothing is known of {path}: it must be there when the tree is loaded, or be made")
        if isinstance(inode.node, SymbolicLink):
            return self._get(os.path.normpath(Path(above, inode.node.target)))
        return inode

    def apply(self, index: int, op: Op) -> bool:
        """Do it; tell whether anything is different now."""
        match op:
            case Open():
                return self._open(index, op)
            case Write() | Copy() | Resize() | SetMode():
                return self._change(index, op)
            case Sync():
                return self._sync(self._files[op.file])
            case SyncAll():
                return self._settle(list(self._dirty), list(self._steps))
            case Acknowledge():
                self.acknowledged += op.data
                return True
            case _:
                return self._rename(index, op)

    def _open(self, index: int, op: Open) -> bool:
        if op.path == ".":
            self._files[op.file] = self._root
            return False
        directory, name = self._locate(op.path)
        inode = directory.entries.get(name)
        if inode is None and op.create:
            empty = File().with_mode(op.mode & ~UMASK)
            inode = self._newest = _Inode(empty, empty)
            self._step(index, _Slot(directory, name, None, inode))
            self._files[op.file] = inode
            return True
        self._files[op.file] = inode
        longer = inode is not None and isinstance(inode.node, File) and inode.node.size > 0
        return op.truncate and longer and self._change(index, Resize(op.file, 0))

    def _change(self, index: int, op: Write | Copy | Resize | SetMode) -> bool:
        inode = self._files[op.file]
        if inode is None:
            raise UnknownFileError(f"Operation {index} is on a file that nothing is known of: {op!r:.200}")
        if not isinstance(inode.node, File):
            return False
        if isinstance(op, Copy):
            source = self._files[op.source]
            assert source is not None
            op = Write(op.file, op.offset, source.file.content[op.source_offset :][: op.size])
        if isinstance(op, Write) and op.offset is None:
            op = Write(op.file, inode.file.size, op.data)
        before = inode.file
        half = before.with_bytes(op.offset or 0, op.data[: len(op.data) // 2]) if isinstance(op, Write) else None
        # The oldest are not asked for again: more than enough of the same file are newer.
        del inode.changes[: -self._most or None]
        for change in inode.changes:
            change.without = _changed(change.without, op)
        self._last = _Change(index, before, half)
        inode.changes.append(self._last)
        inode.node = _changed(before, op)
        self._dirty[inode] = None
        if self._view is not None:
            self._view.settle(self._view.replace(inode, inode.node))
        return True

    def _rename(self, index: int, op: MakeDirectory | Symlink | Link | Rename | Remove) -> bool:
        match op:
            case MakeDirectory():
                made = Directory(op.mode & ~UMASK)
                return self._step(index, self._slot(op.path, _Inode(made, made)))
            case Symlink():
                link = SymbolicLink(op.target)
                return self._step(index, self._slot(op.path, _Inode(link, link)))
            case Remove():
                return self._step(index, self._slot(op.path, None))
            case Link() | Rename():
                old, new = self._slot(op.old, None), self._slot(op.new, None)
                if old.before is None:
                    raise UnknownFileError(f"Nothing is known of {op.old}, which became {op.new}")
                if old.before is new.before:
                    return False
                # A link depends on the first name, which it leaves as it is.
                stays = old.before if isinstance(op, Link) else new.before if op.exchange else None
                return self._step(index, replace(old, after=stays), replace(new, after=old.before))
            case _:
                assert_never(op)

    def _slot(self, path: str, after: _Inode | None) -> _Slot:
        directory, name = self._locate(path)
        return _Slot(directory, name, directory.entries.get(name), after)

    def _step(self, index: int, *slots: _Slot) -> bool:
        if all(slot.before is slot.after for slot in slots):
            return False
        self._steps.append(_Step(index, slots))
        for slot in slots:
            _put(slot.directory.entries, slot.name, slot.after)
        self._view = None
        return True

    def _sync(self, inode: _Inode | None) -> bool:
        """Make a file or directory durable, with its names and with every earlier step that these build on."""
        if inode is None:
            return False
        needed: list[_Step] = []
        slots: set[tuple[_Inode, str]] = set()
        placed = {inode}
        for step in reversed(self._steps):
            if any(
                slot.after in placed or slot.directory is inode or (slot.directory, slot.name) in slots
                for slot in step.slots
            ):
                needed.append(step)
                slots |= {(slot.directory, slot.name) for slot in step.slots}
                placed |= {slot.directory for slot in step.slots}
        return self._settle([inode], needed[::-1])

    def _settle(self, inodes: Sequence[_Inode], steps: Sequence[_Step]) -> bool:
        different = bool(steps) or any(inode.changes for inode in inodes)
        for inode in inodes:
            inode.durable = inode.node
            inode.changes.clear()
            self._dirty.pop(inode, None)
            self._newest = None if self._newest is inode else self._newest
        for step in steps:
            for slot in step.slots:
                _put(slot.directory.durable_entries, slot.name, slot.after)
        settled = {step.index for step in steps}
        self._steps = [step for step in self._steps if step.index not in settled]
        if different:
            self._durable_view = None
        return different

    def outcomes(self) -> Iterator[tuple[str, _Make]]:
        """Tell what a cut at this moment could leave, each to be made when it is wanted."""
        yield "all", partial(self._show, durable=False)
        yield "durable", partial(self._show, durable=True)
        lost: list[tuple[int, _Make]] = [(step.index, partial(self._drop, step)) for step in self._steps]
        for inode in self._dirty:
            lost += [(change.index, partial(self._replace, inode, change.without)) for change in inode.changes]
            if inode.changes[-1] is self._last and self._last.half is not None:
                yield "torn", partial(self._replace, inode, self._last.half)
        lost.sort(key=itemgetter(0))
        for index, make in lost[max(0, len(lost) - self._most) :]:
            yield f"dropped-{index}", make
        if self._newest is not None and self._newest.file.size:
            empty = zeros(self._newest.file.size).with_mode(self._newest.file.mode)
            yield "zeroed", partial(self._replace, self._newest, empty)

    def _show(self, *, durable: bool) -> _Outcome:
        if not durable:
            return self.view.make_outcome()
        self._durable_view = self._durable_view or self._look(durable=True)
        return self._durable_view.make_outcome()

    def _replace(self, inode: _Inode, file: File) -> _Outcome | None:
        """Give a file another content; one without a name is seen by nobody."""
        return self.view.replace(inode, file) if inode in self.view.paths else None

    def _drop(self, dropped: _Step) -> _Outcome:
        """Take a step back, and every later one that builds on it."""
        instead: dict[_Inode, dict[str, _Inode | None]] = {}
        placed: set[_Inode | None] = set()
        for step in self._steps[self._steps.index(dropped) :]:
            if step is dropped or any(
                slot.directory in placed or slot.name in instead.get(slot.directory, ()) for slot in step.slots
            ):
                for slot in step.slots:
                    instead.setdefault(slot.directory, {}).setdefault(slot.name, slot.before)
                    placed.add(slot.after)
        return self._look(instead=instead).make_outcome()


def _put(entries: dict[str, _Inode], name: str, inode: _Inode | None) -> None:
    entries.pop(name, None)
    if inode is not None:
        entries[name] = inode


def _changed(file: File, op: Write | Resize | SetMode) -> File:
    match op:
        case Write():
            return file.with_bytes(op.offset or 0, op.data)
        case Resize():
            return file.with_size(max(op.size, file.size) if op.grow else op.size)
        case SetMode():
            return file.with_mode(op.mode)
        case _:
            assert_never(op)
