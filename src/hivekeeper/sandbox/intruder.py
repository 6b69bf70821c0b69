"""Tries to get out of the sandbox it is started in and tells what it could do; a script for a bare interpreter.

Everything it tries is harmless if it succeeds: it touches only what the probe made for it.
"""

# ruff: noqa: PTH119, PTH120, PTH123, PTH208
# A bare interpreter (-I -S), as the sandbox starts one.

import contextlib
import json
import os
import signal
import sys

_ORPHAN_LIVES_S = 10
_ELSEWHERE = "/etc/passwd"  # where nothing is hidden; opened, never written to
VICTIM = b"sandbox-" + b"victim"  # in two parts, so that our own source on a command line is not taken for it


def main(plan: dict[str, object], *, leave_an_orphan: bool) -> None:
    """Try everything, say so in one line, and stay until killed if there is an orphan to leave."""
    secrets, doors, sandbox, victim = plan["secrets"], plan["doors"], plan["sandbox"], plan["victim"]
    assert isinstance(secrets, list)
    assert isinstance(doors, list)
    told = {
        "read": [path for path in secrets if _can(path, os.O_RDONLY)],
        "listed": [path for path in secrets if os.path.basename(path) in _list(os.path.dirname(path))],
        "opened": [path for path in (*secrets, __file__, _ELSEWHERE) if _can(path, os.O_WRONLY)],
        "cut": [path for path in secrets if _cut(path)],
        "seen": [name for name in ("cmdline", "environ") if _find_victim(name)],
        "sandbox": all(_can(f"{sandbox}/{name}", os.O_WRONLY | os.O_CREAT) for name in ("mine", "mine-too")),
        "shell": os.spawnvp(os.P_WAIT, "sh", ["sh", "-c", "exit 7"]) == 7,  # noqa: PLR2004, S606 - any shell
    }
    for path in doors:
        _can(path, os.O_WRONLY | os.O_CREAT)
    with contextlib.suppress(OSError):
        os.kill(int(str(victim)), signal.SIGKILL)
    if leave_an_orphan:
        _leave_an_orphan()
    os.write(1, json.dumps(told).encode() + b"\n")
    if leave_an_orphan:
        signal.alarm(_ORPHAN_LIVES_S)
        signal.pause()


def _can(path: str, flags: int) -> bool:
    try:
        os.close(os.open(path, flags, 0o600))
    except OSError:
        return False
    return True


def _list(path: str) -> list[str]:
    try:
        return os.listdir(path)
    except OSError:
        return []


def _cut(path: str) -> bool:
    try:
        os.truncate(path, 0)
    except OSError:
        return False
    return True


def _find_victim(name: str) -> bool:
    for pid in _list("/proc"):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/{name}", "rb") as file:
            if VICTIM in file.read():
                return True
    return False


def _leave_an_orphan() -> None:
    """Leave a process that no session, group or parent ties to us; it holds standard output open while it lives."""
    if os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            signal.alarm(_ORPHAN_LIVES_S)  # should it get away, not for long
            signal.pause()
        os._exit(0)
    os.wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), leave_an_orphan=sys.argv[2] == "orphan")
