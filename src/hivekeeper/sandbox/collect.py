"""Collect the outputs a worker promised from its room: all of them, each whole or not at all.

Run as a script by a bare interpreter: `collect.py WORK KEPT TARGET OUTPUT...`. Every output must be a plain file (no
link, no pipe) or a directory of plain files; it is copied, synced, and only then given its name. Where one is missing
or no target is given, what is there is put into KEPT instead and nothing reaches the target.
"""

import os
import shutil
import stat
import sys
from collections.abc import Iterator

NOT_AS_PROMISED = 3
LONGEST_PATH = 1024  # the system takes 4096, and what copies and removes them recurses


def find_problem(work: str, target: str, output: str) -> str | None:
    """Tell what is wrong with an output; None when it is as promised."""
    path = work
    for part in output.split("/"):
        path = f"{path}/{part}"
        try:
            mode = os.lstat(path).st_mode
        except OSError:
            return f"there is no {output}"
        if stat.S_ISLNK(mode):
            return f"{output} is a link, or lies behind one"
    for file in _walk(path):
        if len(os.fsencode(file)) > LONGEST_PATH:
            return f"{output} is nested too deep to be brought out"
        mode = os.lstat(file).st_mode
        if not stat.S_ISREG(mode) and not stat.S_ISDIR(mode):
            where = "is" if file == path else f"holds {os.path.basename(file)}, which is"
            return f"{output} {where} no plain file"
    if target and os.path.isdir(f"{target}/{output}") and not os.path.isdir(path):
        return f"there is a directory where {output} belongs"
    return None


def _walk(path: str) -> Iterator[str]:
    waiting = [path]
    for each in waiting:  # it grows while we walk it
        yield each
        if os.path.isdir(each) and not os.path.islink(each):
            waiting.extend(f"{each}/{name}" for name in os.listdir(each))


def bring(source: str, target: str) -> None:
    """Copy to a name nobody reads, sync, and only then give it its own; a repeat after a crash does the same."""
    draft = f"{target}.hive-new"
    os.makedirs(os.path.dirname(target), exist_ok=True)
    _remove(draft)
    if os.path.isdir(source):
        shutil.copytree(source, draft, copy_function=_copy)
        _remove(target)
    else:
        _copy(source, draft)
    _sync(draft)
    os.replace(draft, target)
    _sync(os.path.dirname(target))


def _copy(source: str, target: str) -> str:
    descriptor = os.open(source, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    with os.fdopen(descriptor, "rb") as read, open(target, "wb") as write:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{source} is no plain file")
        shutil.copyfileobj(read, write, 1 << 20)
        os.fchmod(write.fileno(), stat.S_IMODE(os.fstat(descriptor).st_mode) & 0o777)
        write.flush()
        os.fsync(write.fileno())
    return target


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
    problems = {output: find_problem(work, target, output) for output in outputs}
    wrong = [problem for problem in problems.values() if problem]
    place = kept if wrong or not target else target
    for output, problem in problems.items():
        if problem is None:
            bring(f"{work}/{output}", f"{place}/{output}")
    if wrong and target:
        print(wrong[0])
        return NOT_AS_PROMISED
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
