"""Strace as an instrument: counting the calls a process makes, and making one of them fail or be its last.

Learnt the hard way: `when=k` counts each call by its name and each thread for itself, so a point is a name and a
number; `--seccomp-bpf` never delivers a signal; and a fault that did not fire proves nothing, so every log is read.
"""

import ctypes
import os
import re
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

# Everything that changes something outside the process: files, other processes, the words in a pipe or a socket.
MUTATING = (
    "write", "pwrite64", "writev", "pwritev", "fsync", "fdatasync", "sync_file_range", "ftruncate", "fallocate",
    "rename", "renameat", "renameat2", "link", "linkat", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir",
    "symlink", "symlinkat", "fchmod", "fchmodat", "fchown", "sendto", "sendmsg", "kill", "pidfd_send_signal",
    "clone", "clone3", "vfork", "fork", "openat", "syncfs", "flock",
)  # fmt: skip
_PR_SET_PTRACER, _ANY = 0x59616D61, ctypes.c_ulong(-1)
_PATIENCE_S = 60.0
_LINE = re.compile(r"^(?:\d+\s+)?(\w+)\(")


@dataclass(frozen=True, order=True)
class Fault:
    """What happens at the k-th call of a name: the process dies, or the call fails with an error."""

    call: str
    number: int
    error: str = ""
    lasting: bool = False

    def __str__(self) -> str:
        return f"{self.call}:{self.number}" + (f":{self.error}{'+' if self.lasting else ''}" if self.error else "")

    def inject(self) -> list[str]:
        effect = f"error={self.error}" if self.error else "signal=KILL"
        when = f"{self.number}+" if self.lasting else str(self.number)
        return ["-e", f"trace={self.call}", "-e", f"inject={self.call}:{effect}:when={when}"]


def parse_fault(text: str) -> Fault:
    """Read a fault back from its one line."""
    call, number, *error = text.split(":")
    return Fault(call, int(number), "".join(error).rstrip("+"), lasting=text.endswith("+"))


def count_points(log: str) -> list[Fault]:
    """List every point of a recorded run: each changing call, numbered by its name. Opening counts where it creates."""
    seen: Counter[str] = Counter()
    points = []
    for line in log.splitlines():
        if (found := _LINE.match(line)) and "resumed>" not in line:
            call = found[1]
            seen[call] += 1
            if call != "openat" or "O_CREAT" in line or "O_TRUNC" in line:
                points.append(Fault(call, seen[call]))
    return points


def has_fired(log: str, status: int, fault: Fault) -> bool:
    """Tell whether the fault really happened."""
    return "(INJECTED)" in log if fault.error else status == -9


def record_calls(log: Path) -> list[str]:
    """Tell how strace writes down every changing call of one process."""
    return ["strace", "-qq", "-o", str(log), "-e", f"trace={','.join(MUTATING)}"]


def strike_call(log: Path, fault: Fault) -> list[str]:
    """Tell how strace strikes one call of one process."""
    return ["strace", "-qq", "-o", str(log), *fault.inject()]


def run_traced(job: Callable[[], None], tracer: Sequence[str], patience_s: float = _PATIENCE_S) -> int:
    """Run a job in a forked process with strace attached before it begins; tell its exit status, minus the signal."""
    ready, go = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(go)
        ctypes.CDLL(None).prctl(_PR_SET_PTRACER, _ANY, 0, 0, 0)  # strace is a sibling, not a parent
        be_child(ready, job)
    os.close(ready)
    strace = subprocess.Popen((*tracer, "-p", str(pid)), stderr=subprocess.PIPE)
    try:
        _wait_until_traced(pid, strace)
    finally:
        os.write(go, b"g")
        os.close(go)
    try:
        return wait_for_end(pid, patience_s)
    finally:
        strace.communicate()


def be_child(ready: int, job: Callable[[], None]) -> None:
    """Wait for the word, do the job, and end without any of the parent's last rites."""
    code = 1
    try:
        os.read(ready, 1)
        os.close(ready)
        job()
        code = 0
    finally:
        os._exit(code)


def wait_for_end(pid: int, patience_s: float = _PATIENCE_S) -> int:
    """Wait for a child, but not for ever."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.002)  # real time: another process ends
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    raise TimeoutError(f"it hung for {patience_s:.0f} s")


def _wait_until_traced(pid: int, strace: "subprocess.Popen[bytes]") -> None:
    status, deadline = Path(f"/proc/{pid}/status"), time.monotonic() + _PATIENCE_S
    while "\nTracerPid:\t0\n" in status.read_text():
        if strace.poll() is not None or time.monotonic() > deadline:
            said = (strace.stderr.read() if strace.stderr else b"").decode()
            raise RuntimeError(f"strace could not attach: {said}")
        time.sleep(0.001)  # real time: another process attaches
