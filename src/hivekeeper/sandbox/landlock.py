"""Puts the kernel's Landlock rules around this process and becomes the run; a script for a bare interpreter.

Landlock can only allow, and what it allows at a directory holds for everything below. So wherever something below is
to be less allowed, the entries beside it are allowed one by one, and the directory itself is not: it cannot be listed.

    landlock.py DIRECTORY [hide|read|write PATH]... -- COMMAND...
"""

# ruff: noqa: PTH116, PTH208
# A bare interpreter (-I -S) starts at every run; pathlib alone would cost more than the rest.

import ctypes
import os
import signal
import stat
import sys
from typing import NoReturn

CANNOT = 126
NOT_FOUND = 127
# Before this one (Linux 6.2) anything that could be seen could also be cut to nothing.
_OLDEST = 3
_WITH_IOCTL, WITH_SCOPES = 5, 6

_HIDE, _READ, _WRITE = 0, 1, 2
_MODES = {"hide": _HIDE, "read": _READ, "write": _WRITE}
_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR, _TRUNCATE, _IOCTL = (1 << bit for bit in (0, 1, 2, 3, 14, 15))
_MAKE_DEVICES = 1 << 6 | 1 << 11
_EVERYTHING = (1 << 15) - 1
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL
_RIGHTS = (0, _EXECUTE | _READ_FILE | _READ_DIR, (_EVERYTHING | _IOCTL) & ~_MAKE_DEVICES)
_SCOPE_SOCKETS_AND_SIGNALS = 3
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # the same on every architecture Linux runs agents on
_PATH_BENEATH, _ASK_VERSION = 1, 1
_PR_SET_NO_NEW_PRIVS = 38
_CAPABILITIES_VERSION_3 = 0x20080522

libc = ctypes.CDLL(None, use_errno=True)


def read_version() -> int:
    """Tell which Landlock this kernel has; 0 when none."""
    return max(0, int(libc.syscall(_CREATE_RULESET, None, 0, _ASK_VERSION)))


def main(arguments: list[str]) -> NoReturn:
    """Apply the rules, then become the command."""
    split = arguments.index("--")
    directory, *named = arguments[:split]
    places = {path: _MODES[mode] for mode, path in zip(named[::2], named[1::2], strict=True)}
    try:
        for path, mode in places.items():
            if mode == _WRITE:
                os.stat(path)
        os.chdir(directory)
        _restrict(places)
    except OSError as error:
        _end(CANNOT, f"Landlock could not be applied, so nothing was started: {error}.")
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # this interpreter ignores them, and who we become would too
        signal.signal(number, signal.SIG_DFL)
    command = arguments[split + 1 :]
    try:
        os.execvp(command[0], command)  # noqa: S606 - becoming the command is what this is for
    except OSError as error:
        _end(NOT_FOUND, f"{command[0]} could not be started: {error.strerror}.")


def _restrict(places: dict[str, int]) -> None:
    version = read_version()
    if version < _OLDEST:
        raise OSError(f"this kernel has version {version} of it, and {_OLDEST} is needed (Linux 6.2)")
    handled = _EVERYTHING | (_IOCTL if version >= _WITH_IOCTL else 0)
    scoped = _SCOPE_SOCKETS_AND_SIGNALS if version >= WITH_SCOPES else 0
    attributes = _pack(handled) + (_pack(0) + _pack(scoped) if scoped else b"")
    ruleset = _call(_CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    _allow(ruleset, handled, "/", _READ, places)
    _check(libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
    # Root without capabilities opens no file by its handle, makes no device and reads nobody's environment.
    _check(libc.capset((ctypes.c_uint32 * 2)(_CAPABILITIES_VERSION_3, 0), (ctypes.c_uint32 * 6)()))
    _call(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _allow(ruleset: int, handled: int, path: str, mode: int, places: dict[str, int]) -> None:
    mode = places.get(path, mode)
    start = path.rstrip("/") + "/"
    below = [place for place in places if place.startswith(start) and place != path]
    if any(places[place] < mode for place in below):
        for entry in {*_list(path), *(place.removeprefix(start).partition("/")[0] for place in below)}:
            _allow(ruleset, handled, start + entry, mode, places)
        return
    if mode > _HIDE:
        _add_rule(ruleset, path, _RIGHTS[mode] & handled)
    for place in below:
        if not any(place.startswith(f"{other}/") for other in below):
            _allow(ruleset, handled, place, mode, places)


def _add_rule(ruleset: int, path: str, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return  # gone since it was listed
    try:
        kind = os.fstat(descriptor).st_mode
        # What a link leads to is listed, or not, where it lies.
        if not stat.S_ISLNK(kind):
            rule = _pack(rights if stat.S_ISDIR(kind) else rights & _OF_FILES) + descriptor.to_bytes(4, sys.byteorder)
            _call(_ADD_RULE, ruleset, _PATH_BENEATH, rule, 0)
    finally:
        os.close(descriptor)


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:  # what may not be listed or is no directory has nothing to be allowed
        return []


def _pack(number: int) -> bytes:
    return number.to_bytes(8, sys.byteorder)


def _call(number: int, *arguments: object) -> int:
    return _check(libc.syscall(number, *arguments))


def _check(result: int) -> int:
    if result < 0:
        problem = ctypes.get_errno()
        raise OSError(problem, os.strerror(problem))
    return result


def _end(code: int, words: str) -> NoReturn:
    sys.stderr.write(f"{words}\n")
    sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])
