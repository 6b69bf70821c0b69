"""Collect the outputs a worker promised from its sandbox: all of them, each whole or not at all.

Run as a script by a bare interpreter: `collect.py WORK KEPT TARGET OUTPUT...`. Every output must be a plain file (no
link, no pipe) or a directory of plain files; it is copied, synced, and only then given its name. Where one is missing
or no target is given, what is there is put into KEPT instead and nothing reaches the target.

Every directory is opened beneath the one before it and no link is followed: something the worker left running may swap
a directory for a link at any moment, and what is copied here leaves the sandbox.
"""

import errno
import os
import shutil
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

OUTPUTS_MISSING = 3
MAX_PATH = 1024  # of what is brought out: the system takes 4096, and a person's own programs come after us
_ON_THE_WAY = (errno.ELOOP, errno.ENOENT, errno.ENOTDIR)
_BENEATH = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


class NotAsPromisedError(Exception):
    """Says what is wrong with an output."""


@contextmanager
def open_beneath(top: int, path: str) -> Iterator[int]:
    """Open what lies below a directory, one name after the other."""
    opened = os.dup(top)
    try:
        for name in path.split("/"):
            inner = _open(opened, name)
            os.close(opened)
            opened = inner
        yield opened
    finally:
        os.close(opened)


def _open(directory: int, name: str) -> int:
    try:
        return os.open(name, _BENEATH, dir_fd=directory)
    except PermissionError:
        _permit(directory, name)
        return os.open(name, _BENEATH, dir_fd=directory)


def _permit(directory: int, name: str) -> None:
    """Make a file or directory readable to us, whose it is."""
    place = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
    try:
        mode = os.fstat(place).st_mode
        if stat.S_ISREG(mode) or stat.S_ISDIR(mode):
            os.chmod(
                f"/proc/self/fd/{place}", stat.S_IMODE(mode) | (stat.S_IRWXU if stat.S_ISDIR(mode) else stat.S_IRUSR)
            )
    finally:
        os.close(place)


def list_parts(work: int, output: str) -> Iterator[tuple[str, bool]]:
    """List an output and everything in it, a directory before what it holds, and whether each is one."""
    waiting = [output]
    while waiting:
        path = waiting.pop()
        if len(os.fsencode(path)) > MAX_PATH:
            raise NotAsPromisedError(f"{output} is nested too deep to be brought out")
        try:
            with open_beneath(work, path) as opened:
                mode = os.fstat(opened).st_mode
                names = os.listdir(opened) if stat.S_ISDIR(mode) else []
        except OSError as error:
            raise NotAsPromisedError(_explain(output, path, error)) from error
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            raise NotAsPromisedError(f"{output} {_place(output, path)} no plain file")
        yield path, stat.S_ISDIR(mode)
        waiting.extend(f"{path}/{name}" for name in names)


def _explain(output: str, path: str, error: OSError) -> str:
    if path != output or error.errno not in _ON_THE_WAY:
        return f"{output} {_place(output, path)} no plain file"
    return f"{output} is a link, or lies behind one" if error.errno == errno.ELOOP else f"there is no {output}"


def _place(output: str, path: str) -> str:
    return "is" if path == output else f"holds {os.path.basename(path)}, which is"


def find_problem(work: int, output: str) -> str | None:
    """Tell what is wrong with an output; None when it is as promised."""
    try:
        for _ in list_parts(work, output):
            pass
    except NotAsPromisedError as problem:
        return str(problem)
    return None


def find_obstacle(work: int, target: str, output: str) -> str | None:
    """Tell what is in the way of an output; a link there may be another worker's, and lead anywhere."""
    is_directory = next(list_parts(work, output))[1]
    above, name = os.path.split(output)
    try:
        with _open_directory(target, above) as place:
            mode = os.stat(name, dir_fd=place, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return None
    except OSError as error:
        if error.errno not in _ON_THE_WAY:
            raise
        return f"{above}, where {name} belongs, is a link or no directory"
    return f"there is a directory where {output} belongs" if stat.S_ISDIR(mode) and not is_directory else None


@contextmanager
def _open_directory(target: str, path: str) -> Iterator[int]:
    """Open a directory below the target, which is a person's own choice."""
    top = os.open(target, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        with open_beneath(top, path) if path else nullcontext(top) as opened:
            yield opened
    finally:
        os.close(top)


def bring(work: int, output: str, target: str) -> None:
    """Copy to a name nobody reads, sync, and only then give it its own; a repeat after a crash does the same.

    The target is opened like the source, because another worker may be changing it.
    """
    above, name = os.path.split(output)
    _make_directory(target, above)
    with _open_directory(target, above) as place:
        draft = f"{name}.hive-new"
        _remove(draft, place)
        parts = list(list_parts(work, output))
        for path, is_directory in parts:
            copy = draft + path.removeprefix(output)
            with _open_parent(place, copy) as (parent, last):
                if is_directory:
                    os.mkdir(last, dir_fd=parent)
                else:
                    _copy(work, path, parent, last)
        if parts[0][1]:
            _remove(name, place)
        for path, is_directory in reversed(parts):  # a directory after what it holds
            if is_directory:
                with open_beneath(place, draft + path.removeprefix(output)) as made:
                    os.fsync(made)
        os.replace(draft, name, src_dir_fd=place, dst_dir_fd=place)
        os.fsync(place)


def _make_directory(target: str, path: str) -> None:
    """Make a directory below the target, each name beneath the one before it."""
    os.makedirs(target, exist_ok=True)
    above = ""
    for name in filter(None, path.split("/")):
        with _open_directory(target, above) as place, suppress(FileExistsError):
            os.mkdir(name, dir_fd=place)
            os.fsync(place)
        above = f"{above}/{name}".lstrip("/")


@contextmanager
def _open_parent(top: int, path: str) -> Iterator[tuple[int, str]]:
    above, name = os.path.split(path)
    if not above:
        yield top, name
        return
    with open_beneath(top, above) as opened:
        yield opened, name


def _copy(work: int, path: str, parent: int, name: str) -> None:
    new = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    with open_beneath(work, path) as opened, os.fdopen(os.open(name, new, 0o666, dir_fd=parent), "wb") as write:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no plain file any more")
        with os.fdopen(os.dup(opened), "rb") as read:
            shutil.copyfileobj(read, write, 1 << 20)
        os.fchmod(write.fileno(), stat.S_IMODE(found.st_mode) & 0o777)
        write.flush()
        os.fsync(write.fileno())


def _remove(name: str, place: int) -> None:
    try:
        mode = os.stat(name, dir_fd=place, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        shutil.rmtree(name, dir_fd=place)
    else:
        os.unlink(name, dir_fd=place)


def main(work: str, kept: str, target: str, *outputs: str) -> int:
    """Collect; tell how it went."""
    outputs = tuple(os.path.normpath(output) for output in outputs)
    top = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    problems = {output: find_problem(top, output) for output in outputs}
    good = [output for output in outputs if problems[output] is None]
    wrong = [problem for problem in problems.values() if problem]
    wrong += [found for output in good if target and (found := find_obstacle(top, target, output))]
    for output in good:
        bring(top, output, kept if wrong or not target else target)
    if wrong and target:
        print(wrong[0])
        return OUTPUTS_MISSING
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
