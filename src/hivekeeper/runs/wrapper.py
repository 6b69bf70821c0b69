"""The tiny parent beside every run, and the nursery that forks it.

Rules:
1. The wrapper renames its claim into the run's directory before it does anything else. That fails when a claim is
   there, so a run starts at most once however often, and by however many keepers, it is asked for.
2. It holds the limits itself (wall time, silence, output, memory), because the keeper may be dead all the while.
3. It is the reaper of its whole tree: nothing the run started outlives it, `setsid` or not.
4. Last of all it renames the exit record into place. A wrapper that is gone without one was killed.
5. It wraps one run at a time and takes the next only when the last one's exit record is there; so a claim of a
   living wrapper without an exit record is a living run. Taking several in a row saves a fork each.
6. It stops a run only if that run's directory says so: a signal alone might be meant for the run before.

Nothing here is synced to disk except the exit of a run longer than a second: a claim protects against a second
process, and no process survives a power cut; the ledger knows the boot an intent belongs to (docs/adr/0003).

This file is also run as a script by a bare interpreter, so it imports nothing of the package and little of Python:
every wrapper is a fork of one small process, and its private memory is what a run costs.
"""

import contextlib
import ctypes
import errno
import gc
import json
import os
import select
import signal
import socket
import time
from collections.abc import Callable

_PR_SET_NAME, _PR_SET_CHILD_SUBREAPER = 15, 36
_AT_FDCWD, _RENAME_NOREPLACE = -100, 1
_SYNC_EXITS_AFTER_S = 1.0
_SAMPLE_MEMORY_EVERY_S = 1.0
_SAY_BEGUN_AFTER_S = 0.05
_GIVE_UP_REAPING_AFTER_S = 10.0
_FREE_WRAPPERS_LEAVE_AFTER_S = 5.0
# A run that is not sandboxed may put anything here: no link is followed, no FIFO waited for.
_NEW_FILE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_MAY_PASS = (errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM)
_CHUNK = 1 << 16
_LARGEST_HANDED_ON = 1 << 16  # what a socket surely takes at once; more is given to a new wrapper as it is forked
_LONGEST_WAIT_MS = 3_600_000.0  # poll() takes no year


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
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdigit() and (fields := _read_stat(name)) is not None:
            children.setdefault(int(fields[1]), []).append(int(name))
    found = [root]
    for pid in found:  # it grows while we walk it
        found.extend(children.get(pid, ()))
    return found[1:]


def _tree_memory(root: int) -> int:
    pages = 0
    for pid in _descendants(root):
        with contextlib.suppress(OSError, ValueError, IndexError), open(f"/proc/{pid}/statm", "rb") as file:
            pages += int(file.read().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


class _Watch:
    """Follows one started command to its end."""

    def __init__(self, request: dict[str, object], directory: str) -> None:
        """Start the command. Every descriptor that following it takes is there before it begins."""
        self.directory = directory
        self.limits: dict[str, float | None] = request["limits"]  # type: ignore[assignment]
        self.file: int | None = None
        self.output_bytes = 0
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
        self.started = self.heard = self.sampled = time.monotonic()

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
        while self._copy_output():
            pass
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
        cap = self.limits.get("output_bytes")
        room = _CHUNK if cap is None else min(_CHUNK, int(cap) - self.output_bytes)
        try:
            words = os.read(self.pipe, room if room > 0 else _CHUNK)
        except BlockingIOError:
            return False
        self.heard = time.monotonic()
        if words and room > 0:
            self.output_bytes += len(words)
            with contextlib.suppress(
                OSError
            ):  # a full disk must not stop the watch: the words are lost, the run goes on
                if self.file is None:
                    self.file = os.open(f"{self.directory}/output", _NEW_FILE, 0o600)
                os.write(self.file, words)
        elif words and self.kill_at is None:  # over the cap: thrown away, and its coming ends the run
            self._end("output")
        return bool(words)

    def _wait_ms(self) -> float | None:
        now = time.monotonic()
        moments = [self.kill_at] if self.kill_at is not None else self._deadlines()
        if self.say_begun is not None:
            moments.append(self.started + _SAY_BEGUN_AFTER_S)
        return min(max(0.0, min(moments) - now) * 1000 + 1, _LONGEST_WAIT_MS) if moments else None

    def _deadlines(self) -> list[float]:
        wall, silence, memory = (self.limits.get(name) for name in ("wall_s", "silence_s", "memory_bytes"))
        moments = [] if wall is None else [self.started + wall]
        if silence is not None:
            moments.append(self.heard + silence)
        if memory is not None:
            moments.append(self.sampled + _SAMPLE_MEMORY_EVERY_S)
        return moments

    def _hold_limits(self) -> None:
        now = time.monotonic()
        wall, silence, memory = (self.limits.get(name) for name in ("wall_s", "silence_s", "memory_bytes"))
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
        elif memory is not None and now >= self.sampled + _SAMPLE_MEMORY_EVERY_S:
            self.sampled = now
            if _tree_memory(os.getpid()) > memory:
                self._end("memory", grace=False)

    def _end(self, reason: str, *, grace: bool = True) -> None:
        self.ended_by = reason
        self.kill_at = time.monotonic() + (float(self.limits.get("grace_s") or 0.0) if grace else 0.0)
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.child, signal.SIGTERM)


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
            time.sleep(0.005)


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
    return os.posix_spawn(path, argv, environment, file_actions=actions, setpgroup=0, setsigdef=_SIGNALS, setsigmask=())


def _find_command(command: str, environment: dict[str, str]) -> str:
    """Find a command in the path of the run's own environment, not ours; trying each out would cost a fork."""
    if "/" in command:
        return command
    for directory in os.get_exec_path(environment):
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
        ending = {"status": 127, "ended_by": "could-not-start", "output_bytes": 0, "problem": str(error)}
    else:
        status = os.waitstatus_to_exitcode(watch.follow(lambda: _tell(tell, {"run": request["run"], "begun": True})))
        ending = {"status": status, "ended_by": watch.ended_by, "output_bytes": watch.output_bytes}
    ending["survivors"] = _reap_rest()  # also when it could not be followed: nothing may outlive its record
    ending["at"] = time.time()
    _write_ending(directory, ending, sync=time.monotonic() - started > _SYNC_EXITS_AFTER_S)
    _tell(tell, {"run": request["run"], "ended": True})


def _write_ending(directory: str, ending: dict[str, object], *, sync: bool) -> None:
    draft, number = f"{directory}/exit.{os.getpid()}", 0
    while True:
        try:
            _write(f"{draft}.{number}", ending, sync=sync)
            os.rename(f"{draft}.{number}", f"{directory}/exit")
        except OSError as error:
            if error.errno not in _MAY_PASS:
                raise  # somebody removed or spoilt the directory: dying without a record says LOST
            number += 1
            time.sleep(1.0)  # a full disk: the ending is worth waiting for, and until then the run counts as running
        else:
            return


def _tell(descriptor: int, message: dict[str, object]) -> None:
    """Say something to the keeper, if there still is one; short lines are written whole."""
    with contextlib.suppress(BrokenPipeError):
        os.write(descriptor, json.dumps(message).encode() + b"\n")


def _be_wrapper(first: bytes, channel: socket.socket, tell: int) -> None:
    """Wrap one run after another, one at a time, until the nursery is gone."""
    os.setsid()
    libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    libc.prctl(_PR_SET_NAME, b"hive-run", 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # between runs there is nothing to stop
    identity.update(pid=os.getpid(), start_ticks=read_start_ticks(os.getpid()))
    lines = channel.makefile("rb")
    line = first
    while line.endswith(b"\n"):  # half a line is a nursery's last word
        run(json.loads(line), tell)
        try:
            channel.sendall(b".")
        except OSError:
            return
        line = lines.readline()


class _Nursery:
    """Forks wrappers and hands runs to those that are free."""

    def __init__(self) -> None:
        self.free: list[tuple[socket.socket, float]] = []
        self.all: dict[int, socket.socket] = {}
        self.handed: dict[int, bytes] = {}
        self.poll = select.poll()

    def serve(self) -> None:
        """Hand on every line asked on standard input until it is closed; then whoever is busy finishes alone."""
        self.poll.register(0, select.POLLIN)
        rest = b""
        while True:
            for descriptor, _ in self.poll.poll(self._send_away_idle()):
                if descriptor == 0:
                    chunk = os.read(0, 1 << 20)
                    if not chunk:
                        return
                    *lines, rest = (rest + chunk).split(b"\n")
                    for line in lines:
                        self._hand_on(line + b"\n")
                elif descriptor in self.all:
                    self._hear(self.all[descriptor])

    def _send_away_idle(self) -> float | None:
        """Let go of who has been free for long; tell how long to wait for the next to be."""
        now = time.monotonic()
        while self.free and now - self.free[0][1] >= _FREE_WRAPPERS_LEAVE_AFTER_S:
            self._forget(self.free.pop(0)[0])
        return (_FREE_WRAPPERS_LEAVE_AFTER_S - (now - self.free[0][1])) * 1000 + 1 if self.free else None

    def _hear(self, channel: socket.socket) -> None:
        try:
            heard = channel.recv(64)
        except BlockingIOError:  # the news was of another that had this number
            return
        except OSError:
            heard = b""
        if heard:
            self.handed.pop(channel.fileno(), None)
            self.free.append((channel, time.monotonic()))
            return
        line = self.handed.get(channel.fileno())
        self._forget(channel)
        _tell(1, {"gone": True})
        if line is not None:  # it may have died before it claimed; if not, asking again comes to nothing
            self._hand_on(line, once_more=False)

    def _forget(self, channel: socket.socket) -> None:
        self.poll.unregister(channel.fileno())
        del self.all[channel.fileno()]
        self.handed.pop(channel.fileno(), None)
        self.free = [pair for pair in self.free if pair[0] is not channel]
        channel.close()

    def _hand_on(self, line: bytes, *, once_more: bool = True) -> None:
        """Give a line to a free wrapper or a new one; one that dies over it is followed by one other, no more."""
        while self.free and len(line) <= _LARGEST_HANDED_ON:
            channel, _ = self.free.pop()
            try:
                if channel.send(line) == len(line):
                    self.handed.update({channel.fileno(): line} if once_more else {})
                    return
            except OSError:
                pass
            self._forget(channel)  # dead, or too stiff to take a line
        try:
            descriptor = self._fork(line)
            self.handed.update({descriptor: line} if once_more else {})
        except OSError as error:  # no more processes or descriptors: the keeper asks again
            _tell(1, {"run": json.loads(line)["run"], "problem": str(error)})

    def _fork(self, line: bytes) -> int:
        ours, theirs = socket.socketpair()
        try:
            pid = os.fork()
        except OSError:
            ours.close()
            theirs.close()
            raise
        if pid == 0:
            ours.close()
            self._become_wrapper(line, theirs)
        theirs.close()
        ours.settimeout(0)
        self.all[ours.fileno()] = ours
        self.poll.register(ours.fileno(), select.POLLIN)
        return ours.fileno()

    def _become_wrapper(self, line: bytes, theirs: socket.socket) -> None:
        code = 1
        try:
            # Only these three stay open: a channel of another wrapper held here would hide the nursery's end from it.
            tell, channel = os.dup(1), theirs.detach()
            for descriptor in self.all:
                os.close(descriptor)
            null = os.open("/dev/null", os.O_RDWR)
            os.dup2(null, 0)
            os.dup2(null, 1)
            os.close(null)
            _be_wrapper(line, socket.socket(fileno=channel), tell)
            code = 0
        finally:
            os._exit(code)


def main() -> None:
    """Be the nursery until standard input is closed."""
    # Whatever the keeper blocked or ignored is not for those we start.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in _SIGNALS:
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)  # a keeper that is gone is an error to be caught, not our end
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # wrappers are nobody's to wait for: their exit record speaks
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the keeper
    gc.freeze()
    gc.disable()
    _Nursery().serve()


_SIGNALS = signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}
libc = ctypes.CDLL(None, use_errno=True)
identity: dict[str, object] = {}

if __name__ == "__main__":
    main()
