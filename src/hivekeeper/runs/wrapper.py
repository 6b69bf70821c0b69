"""The tiny parent beside every run: claims it, starts it, holds its limits, ends the whole tree, writes how it ended.

Rules:
1. The wrapper renames its claim into the run's directory before it does anything else. That fails when a claim is
   there, so a run starts at most once however often, and by however many keepers, it is asked for.
2. It holds the limits itself (wall time, silence, output, memory, processes, disk), because the keeper may be dead
   all the while.
3. It is the reaper of its whole tree: nothing the run started outlives it, `setsid` or not.
4. Last of all it renames the exit record into place. A wrapper that is gone without one was killed.
5. It wraps one run at a time and takes the next only when the last one's exit record is there; so a claim of a
   living wrapper without an exit record is a living run. Taking several in a row saves a fork each.
6. It stops a run only if that run's directory says so: a signal alone might be meant for the run before.

Nothing here is synced to disk except the exit of a run longer than a second: a claim protects against a second
process, and no process survives a power cut; the ledger knows the boot an intent belongs to (docs/adr/0003).

The nursery (`nursery.py`) loads this file into a bare interpreter, so it imports nothing of the package and little of
Python: every wrapper is a fork of one small process, and its private memory is what a run costs.
"""

import contextlib
import ctypes
import errno
import json
import os
import select
import signal
import time
from collections.abc import Callable, Iterator

TYPE_CHECKING = False  # type checkers know the name; the module that has it would cost more memory than a run
if TYPE_CHECKING or __name__ != "wrapper":
    from hivekeeper.runs import disk
else:  # in the nursery's bare interpreter, which finds files beside this one by their own names
    import disk

_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_SYNC_EXITS_AFTER_S = 1.0
_SAMPLE_PROCESSES_EVERY_S = 0.25
_SAMPLE_MEMORY_EVERY_S = 1.0
_SAY_BEGUN_AFTER_S = 0.05
_GIVE_UP_REAPING_AFTER_S = 10.0
_LONGEST_REST_MS, _MAX_AWAITED = 5.0, 16
# A run that is not sandboxed may put anything here: no link is followed, no FIFO waited for.
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_NOT_OF_THE_COMMAND = 75  # the code of sysexits.h for what may work another time; 127 says that the command is wrong
_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CHUNK = 1 << 16
_MAX_PIPE = 1 << 20
_KEPT_TAIL = 1 << 16
_RLIMIT_FSIZE = 1
_Rlimit = ctypes.c_uint64 * 2  # soft, hard
# As the parent of the killed process hears it, and as a shell or bubblewrap passes it on.
_TOO_LARGE_A_FILE = (-signal.SIGXFSZ, 128 + signal.SIGXFSZ)
_MAX_WAIT_MS = 3_600_000.0  # poll() takes no year


def read_boot_id() -> str:
    """Tell which boot of this machine it is."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return file.read().strip()


def read_start_ticks(pid: int) -> int | None:
    """Tell when a process started, in ticks since boot; None when there is no such process or it is dead."""
    fields = _read_stat(pid)
    return None if fields is None else int(fields[19])


def _read_stat(pid: int | str) -> list[bytes] | None:
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            # The second field is the name in brackets and may itself hold blanks and brackets.
            fields = file.read().rpartition(b")")[2].split()
        # A program whose first thread has ended looks like a zombie while its other threads live.
        is_dead = fields[0] in (b"Z", b"X") and not os.listdir(f"/proc/{pid}/task")[1:]
    except (FileNotFoundError, ProcessLookupError):
        return None
    return None if is_dead else fields


def write_claim(directory: str, claim: dict[str, object]) -> bool:
    """Claim a run for good; False when somebody has."""
    try:
        os.mkdir(directory, 0o700)
    except FileExistsError:
        pass
    except FileNotFoundError:
        os.makedirs(directory, mode=0o700, exist_ok=True)
    draft = f"{directory}/claim.{os.getpid()}"
    with contextlib.suppress(FileNotFoundError):
        os.unlink(draft)  # of a process that had our pid
    try:
        _write(draft, claim)
    except OSError:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(draft)
        raise
    return _rename_new(draft, f"{directory}/claim")


def _rename_new(draft: str, name: str) -> bool:
    """Give a complete file its name unless the name is taken; the draft is gone either way."""
    # Not link and unlink: every unlinked inode slows ext4's next allocations down for seconds (20 % of a run).
    if libc.renameat2(_AT_FDCWD, os.fsencode(draft), _AT_FDCWD, os.fsencode(name), _RENAME_NOREPLACE) == 0:
        return True
    if ctypes.get_errno() != errno.EEXIST:  # a file system without this call
        with contextlib.suppress(FileExistsError):
            os.link(draft, name)
            os.unlink(draft)
            return True
    os.unlink(draft)
    return False


def kill_tree(root: int) -> None:
    """Kill every descendant of a process, stopped first: so a fork bomb cannot outrun us."""
    victims = _descendants(root)
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in victims:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, number)


def _write(path: str, content: dict[str, object], *, sync: bool = False) -> None:
    descriptor = os.open(path, _NEW_FILE, 0o600)
    try:
        os.write(descriptor, json.dumps(content).encode())
        if sync:
            os.fdatasync(descriptor)
    finally:
        os.close(descriptor)


def _descendants(root: int) -> list[int]:
    """List what is below a process and alive."""
    found = _walk(root) if _has_children_files(root) else _search(root)
    return [pid for pid in found if _read_stat(pid) is not None]


def _has_children_files(root: int) -> bool:
    return os.path.exists(f"/proc/{root}/task/{root}/children")  # a kernel can be built without


def _walk(root: int, enough: int | None = None) -> list[int]:
    """List what is below a process, dead or alive, or as much of it as is enough.

    Along the tree, not through all of /proc: that costs the more the busier the machine is, beside every run that ends.
    Whoever moves while we walk is found by the next walk: what loses its parent becomes a child of the wrapper.
    """
    found = [root]
    for pid in found:  # it grows while we walk it
        with contextlib.suppress(OSError, ValueError):
            for thread in os.listdir(f"/proc/{pid}/task"):
                with open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                    found.extend(map(int, file.read().split()))
        if enough is not None and len(found) - 1 > enough:
            break
    return found[1:]


def _search(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read_stat(name)) is not None:
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:
        found.extend(children.get(pid, ()))
    return found[1:]


def _tree_memory(root: int) -> int:
    pages = 0
    for pid in _descendants(root):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _watch_memory() -> Iterator[tuple[int, float]]:
    """Give what there is, again and again, and how long to wait for the next look; as does the one below."""
    yield 0, _SAMPLE_MEMORY_EVERY_S
    while True:
        yield _tree_memory(os.getpid()), _SAMPLE_MEMORY_EVERY_S


def _watch_processes(child: int, enough: int) -> Iterator[tuple[int, float]]:
    yield 0, _SAMPLE_PROCESSES_EVERY_S
    while True:
        began = time.process_time()
        # What lost its parent is ours to bury: the dead that nobody waits for fill the process table too.
        while (dead := os.waitid(os.P_ALL, 0, _ANY_DEAD)) is not None and dead.si_pid != child:
            os.waitpid(dead.si_pid, 0)
        found = _count_processes(os.getpid(), enough)
        yield found, max(_SAMPLE_PROCESSES_EVERY_S, disk.REST_AFTER_WORK * (time.process_time() - began))


def _count_processes(root: int, enough: int) -> int:
    """Count what is below a process until that is more than enough; the dead that its program left count too."""
    return len(_walk(root, enough) if _has_children_files(root) else _search(root))


class _Watch:
    """Follows one started command to its end."""

    def __init__(self, request: dict[str, object], directory: str) -> None:
        """Start the command. Every descriptor that following it takes is there before it begins."""
        self.directory = directory
        self.limits: dict[str, float | None] = request["limits"]  # type: ignore[assignment]
        self.is_isolated = bool(request.get("isolated"))
        self.file: int | None = None
        self.output_bytes = 0
        self.tail = b""
        self.ended_by = "exit"
        self.kill_at: float | None = None
        self.say_begun: Callable[[], None] | None = None
        opened: list[int] = []
        try:
            opened += os.pipe2(os.O_CLOEXEC)
            opened += os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
            opened.append(os.open("/dev/null", os.O_RDONLY | os.O_CLOEXEC))  # keeps a place for the child's own
            self.pipe, output, self.wake, self.wake_write, spare = opened
            os.set_blocking(self.pipe, False)
            self.child = _spawn(request, output)
        except BaseException:
            for descriptor in opened:
                os.close(descriptor)
            raise
        os.close(output)
        os.close(spare)
        self.child_descriptor = os.pidfd_open(self.child)
        self.started = self.heard = time.monotonic()
        samples = {
            "processes": _watch_processes(self.child, int(self.limits.get("processes") or 0)),
            "memory_bytes": _watch_memory(),
            "disk_bytes": disk.watch(request.get("measured") or ()),  # type: ignore[arg-type]
        }
        self.samples = {name: each for name, each in samples.items() if self.limits.get(name) is not None}
        self.due = {name: self.started + next(each)[1] for name, each in self.samples.items()}

    def follow(self, say_begun: Callable[[], None]) -> int:
        """Wait for the command's end, copying output and holding limits; give its wait status.

        That it has begun is worth a word only when it has not ended a moment later.
        """
        self.say_begun = say_begun
        # The signal only wakes; whether it is meant for this run its directory says, before the first wait too.
        signal.set_wakeup_fd(self.wake_write, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda _number, _frame: None)
        poll = select.poll()
        for descriptor in (self.child_descriptor, self.wake, self.pipe):
            poll.register(descriptor, select.POLLIN)
        self._obey()
        while True:
            ready = {descriptor for descriptor, _ in poll.poll(self._wait_ms())}
            if self.wake in ready:
                os.read(self.wake, 64)
                self._obey()
            if self.pipe in ready and not self._copy_output():
                poll.unregister(self.pipe)
            if self.child_descriptor in ready:
                break
            self._hold_limits()
        _, status = os.waitpid(self.child, 0)
        for _ in range(_MAX_PIPE // _CHUNK):  # what it said itself is in there; others may talk on for ever
            if not self._copy_output():
                break
        self._keep_tail()
        if self.ended_by == "exit" and self.limits.get("disk_bytes") is not None:
            self.ended_by = "disk" if os.waitstatus_to_exitcode(status) in _TOO_LARGE_A_FILE else "exit"
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        for descriptor in (self.child_descriptor, self.wake, self.wake_write, self.pipe):
            os.close(descriptor)
        if self.file is not None:
            os.close(self.file)
        return status

    def _obey(self) -> None:
        if self.kill_at is None and os.path.lexists(f"{self.directory}/kill"):
            self._end("killed")

    def _copy_output(self) -> bool:
        """Copy what is there to the file, up to the cap; False at the end or when nothing is left."""
        try:
            words = os.read(self.pipe, _CHUNK)
        except BlockingIOError:
            return False
        self.heard = time.monotonic()
        cap = self.limits.get("output_bytes")
        left = len(words) if cap is None else max(0, int(cap) - self.output_bytes)
        self.output_bytes += len(words)
        self._keep(words[:left])
        if len(words) > left:  # over the cap: its coming ends the run, and only the last of it is kept
            self.tail = (self.tail + words[left:])[-_KEPT_TAIL:]
            if self.kill_at is None:
                self._end("output")
        return bool(words)

    def _keep(self, words: bytes) -> None:
        if words:
            with contextlib.suppress(OSError):  # a full disk must not stop the watch: words are lost, the run goes on
                if self.file is None:
                    self.file = os.open(f"{self.directory}/output", _NEW_FILE, 0o600)
                os.write(self.file, words)

    def _keep_tail(self) -> None:
        if self.tail:
            left_out = self.output_bytes - int(self.limits["output_bytes"] or 0) - len(self.tail)
            if left_out:
                self._keep(b"\n[%d bytes of output were left out here]\n" % left_out)
            self._keep(self.tail)

    def _wait_ms(self) -> float | None:
        now = time.monotonic()
        moments = [self.kill_at] if self.kill_at is not None else self._deadlines()
        if self.say_begun is not None:
            moments.append(self.started + _SAY_BEGUN_AFTER_S)
        return min(max(0.0, min(moments) - now) * 1000 + 1, _MAX_WAIT_MS) if moments else None

    def _deadlines(self) -> list[float]:
        moments = list(self.due.values())
        if (wall := self.limits.get("wall_s")) is not None:
            moments.append(self.started + wall)
        if (silence := self.limits.get("silence_s")) is not None:
            moments.append(self.heard + silence)
        return moments

    def _hold_limits(self) -> None:
        now = time.monotonic()
        wall, silence = self.limits.get("wall_s"), self.limits.get("silence_s")
        if self.say_begun is not None and now >= self.started + _SAY_BEGUN_AFTER_S:
            self.say_begun()
            self.say_begun = None
        if self.kill_at is not None:
            if now >= self.kill_at:
                kill_tree(os.getpid())
                self.kill_at = now + 1.0
        elif wall is not None and now >= self.started + wall:
            self._end("wall")
        elif silence is not None and now >= self.heard + silence:
            self._end("silence")
        else:
            self._take_samples(now)

    def _take_samples(self, now: float) -> None:
        for name in [name for name, due in self.due.items() if now >= due]:
            found, rest_s = next(self.samples[name])
            self.due[name] = time.monotonic() + rest_s
            if found > (self.limits[name] or 0):
                self._kill(name.removesuffix("_bytes"))
                return

    def _end(self, reason: str) -> None:
        """Ask the run to end, and give it its grace."""
        self.ended_by = reason
        self.kill_at = time.monotonic() + float(self.limits.get("grace_s") or 0.0)
        if not self.is_isolated:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child, signal.SIGTERM)
            return
        # Of the polite signal bubblewrap itself would die, and at once everything inside with it.
        inside = [pid for pid in _descendants(os.getpid()) if pid != self.child]
        for pid in inside or [self.child]:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGTERM)

    def _kill(self, reason: str) -> None:
        """End the run without asking: it is taking from everybody."""
        self.ended_by, self.kill_at = reason, time.monotonic()
        # One call that no fork outruns: it ends a bomb that stayed in its group, or a sandbox with everything in it.
        # Whatever left the group is left to kill_tree, which then has the machine to itself.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, signal.SIGKILL)


def _reap_rest() -> int:
    """End whatever the command left behind: with us as subreaper all of it is ours. Tell what would not die."""
    give_up_at = time.monotonic() + _GIVE_UP_REAPING_AFTER_S
    while True:
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return 0
        if pid == 0:
            if time.monotonic() > give_up_at:
                return len(_descendants(os.getpid()))
            kill_tree(os.getpid())
            _await_an_end(_LONGEST_REST_MS)


def _await_an_end(longest_ms: float) -> None:
    """Wait until one of our children has died, but not for long: what it leaves is ours to end too."""
    poll, opened = select.poll(), list[int]()
    for pid in _walk(os.getpid(), 0)[:_MAX_AWAITED]:
        with contextlib.suppress(OSError):  # it is gone, or there is no descriptor left
            opened.append(os.pidfd_open(pid))
            poll.register(opened[-1], select.POLLIN)
    poll.poll(longest_ms)
    for descriptor in opened:
        os.close(descriptor)


def _spawn(request: dict[str, object], output: int) -> int:
    os.chdir(str(request["directory"]))
    argv: list[str] = request["argv"]  # type: ignore[assignment]
    environment: dict[str, str] = request["environment"]  # type: ignore[assignment]
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, "/dev/null", os.O_RDONLY, 0),
        (os.POSIX_SPAWN_DUP2, output, 1),
        (os.POSIX_SPAWN_DUP2, output, 2),
    ]
    path = _find_command(argv[0], environment)
    limits: dict[str, float | None] = request["limits"]  # type: ignore[assignment]
    before = _Rlimit()
    libc.prlimit(0, _RLIMIT_FSIZE, None, before)
    soft, hard = before
    largest = hard if (disk := limits.get("disk_bytes")) is None else min(int(disk), hard)
    # No file may outgrow the limit between two samples. Ours for the moment and inherited: set on the child afterwards
    # it would miss what that starts first. Its hard limit follows, which we, having lowered ours, could never raise.
    libc.prlimit(0, _RLIMIT_FSIZE, _Rlimit(min(largest, soft), hard), None)
    try:
        # A session of its own, which Linux shares the processor out by: a fork bomb in there does not starve us.
        child = os.posix_spawn(
            path, argv, environment, file_actions=actions, setsid=True, setsigdef=SIGNALS, setsigmask=()
        )
    finally:
        libc.prlimit(0, _RLIMIT_FSIZE, before, None)
    libc.prlimit(child, _RLIMIT_FSIZE, _Rlimit(min(largest, soft), largest), None)
    return child


def _find_command(command: str, environment: dict[str, str]) -> str:
    """Find a command in the path of the run's own environment, not ours; trying each out would cost a fork."""
    if "/" in command:
        return command
    # Not os.get_exec_path: it loads a module, anew in every wrapper (a quarter of its private memory).
    for directory in environment.get("PATH", os.defpath).split(os.pathsep):
        path = f"{directory or '.'}/{command}"
        if os.access(path, os.X_OK) and not os.path.isdir(path):
            return path
    raise FileNotFoundError(errno.ENOENT, "there is no such command", command)


def run(request: dict[str, object], tell: int) -> None:
    """Be the wrapper of one run, from the claim to the exit record."""
    directory, started = str(request["run_directory"]), time.monotonic()
    claim: dict[str, object] = request["claim"]  # type: ignore[assignment]
    if not write_claim(directory, {**identity, **claim, "at": time.time()}):
        return
    ending: dict[str, object]
    try:
        watch = _Watch(request, directory)
    except (OSError, ValueError, TypeError, IndexError) as error:
        number = getattr(error, "errno", None)
        problem = "it is longer than this system allows" if number == errno.E2BIG else str(error)
        is_ours = number in (*_MAY_PASS, errno.EAGAIN) or not os.path.isdir(str(request["directory"]))
        status = _NOT_OF_THE_COMMAND if is_ours else 127
        ending = {"status": status, "ended_by": "could-not-start", "output_bytes": 0, "problem": problem}
    else:
        status = os.waitstatus_to_exitcode(watch.follow(lambda: say(tell, {"run": request["run"], "begun": True})))
        ending = {"status": status, "ended_by": watch.ended_by, "output_bytes": watch.output_bytes}
    ending["survivors"] = _reap_rest()  # also when it could not be followed: nothing may outlive its record
    ending["at"] = time.time()
    _write_ending(directory, ending, sync=time.monotonic() - started > _SYNC_EXITS_AFTER_S)
    say(tell, {"run": request["run"], "ended": True})


def _write_ending(directory: str, ending: dict[str, object], *, sync: bool) -> None:
    draft, number = f"{directory}/exit.{os.getpid()}", 0
    while True:
        try:
            _write(f"{draft}.{number}", ending, sync=sync)
            os.rename(f"{draft}.{number}", f"{directory}/exit")
        except OSError as error:
            if error.errno not in _MAY_PASS:
                raise  # somebody removed or spoilt the directory: dying without a record says LOST
            with contextlib.suppress(OSError):
                os.unlink(f"{draft}.{number}")
            number += 1
            time.sleep(1.0)  # a full disk: the ending is worth waiting for, and until then the run counts as running
        else:
            return


def say(descriptor: int, message: dict[str, object]) -> None:
    """Say something to the keeper, if there still is one; short lines are written whole."""
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, json.dumps(message).encode() + b"\n")


SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
_ANY_DEAD = os.WEXITED | os.WNOHANG | os.WNOWAIT
libc = ctypes.CDLL(None, use_errno=True)
identity: dict[str, object] = {}
