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
from contextlib import contextmanager

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


def find_problem(work: int, target: str, output: str) -> str | None:
    """Tell what is wrong with an output; None when it is as promised."""
    try:
        (_, is_directory), *_ = list_parts(work, output)
    except NotAsPromisedError as problem:
        return str(problem)
    if target and os.path.isdir(f"{target}/{output}") and not is_directory:
        return f"there is a directory where {output} belongs"
    return None


def bring(work: int, output: str, target: str) -> None:
    """Copy to a name nobody reads, sync, and only then give it its own; a repeat after a crash does the same."""
    draft = f"{target}.hive-new"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    _remove(draft)
    parts = list(list_parts(work, output))
    for path, is_directory in parts:
        copy = draft + path.removeprefix(output)
        if is_directory:
            os.mkdir(copy)
        else:
            _copy(work, path, copy)
    if parts[0][1]:
        _remove(target)
    for path, is_directory in reversed(parts):  # a directory after what it holds
        if is_directory:
            _sync(draft + path.removeprefix(output))
    os.replace(draft, target)
    _sync(os.path.dirname(target))


def _copy(work: int, path: str, target: str) -> None:
    with open_beneath(work, path) as opened, open(target, "xb") as write:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise OSError(f"{path} is no plain file any more")
        with os.fdopen(os.dup(opened), "rb") as read:
            shutil.copyfileobj(read, write, 1 << 20)
        os.fchmod(write.fileno(), stat.S_IMODE(found.st_mode) & 0o777)
        write.flush()
        os.fsync(write.fileno())


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def main(work: str, kept: str, target: str, *outputs: str) -> int:
    """Collect; tell how it went."""
    outputs = tuple(os.path.normpath(output) for output in outputs)
    top = os.open(work, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW)
    problems = {output: find_problem(top, target, output) for output in outputs}
    wrong = [problem for problem in problems.values() if problem]
    place = kept if wrong or not target else target
    for output, problem in problems.items():
        if problem is None:
            bring(top, output, f"{place}/{output}")
    if wrong and target:
        print(wrong[0])
        return OUTPUTS_MISSING
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
