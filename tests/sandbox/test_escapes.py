"""Every way out that a hostile worker may try, on its own, at every isolation level this machine has."""

import json
import os
import pty
import select
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from hivekeeper.sandbox import landlock
from hivekeeper.sandbox.isolation import Isolation, Level
from tests.needs import need
from tests.sandbox.prison import CANARY, Prison

SHARED = Path("/dev/shm")  # noqa: S108 - that it is not shared is what is tested
READ = "import sys; print(open(sys.argv[1]).read())"
PTRACE_SEIZE = 0x4206


@pytest.fixture
def victim() -> "subprocess.Popen[bytes]":
    """A process outside, with a secret in its environment and on its command line."""
    return subprocess.Popen(
        ["sh", "-c", "read line", CANARY], stdin=subprocess.PIPE, env={"PATH": os.environ["PATH"], "KEY": CANARY}
    )


def test_without_isolation_every_secret_is_there_for_the_taking(root: Path) -> None:
    """So what is tried below is the isolation, and not a mistake in the trying."""
    prison = Prison(root, Isolation(Level.LIMITS, "", str(root / "home"))).build()
    for secret in prison.secrets:
        assert CANARY in prison.attempt(READ, secret)


def test_what_is_hidden_cannot_be_read_listed_or_linked_to(prison: Prison) -> None:
    for secret in prison.secrets:
        assert secret.read_text() == CANARY
        assert CANARY not in prison.attempt(READ, secret)
        names = prison.attempt("import os, sys; print(os.listdir(sys.argv[1]))", secret.parent)
        # A single file that is hidden keeps its name; whatever lies in a hidden directory does not.
        assert "'secret'" not in names or secret.parent == prison.root
        link = "import os, sys; os.link(sys.argv[1], 'link'); print(open('link').read())"
        assert CANARY not in prison.attempt(link, secret)
        symlink = "import os, sys; os.symlink(sys.argv[1], 'symlink'); print(open('symlink').read())"
        assert CANARY not in prison.attempt(symlink, secret)
        (prison.own / "symlink").unlink()
        assert CANARY not in prison.attempt(READ, f"{prison.own}/../../../{secret.relative_to(prison.root)}")


def test_nothing_outside_of_its_sandbox_can_be_written_emptied_moved_or_removed(prison: Prison) -> None:
    attempts = (
        "open(path, 'w').write('gone')",
        "open(path, 'a').write('more')",
        "os.truncate(path, 0)",
        "os.unlink(path)",
        "os.rename(path, 'mine')",
        "open('new', 'w').write('gone'); os.rename('new', path)",
        "open(os.path.dirname(path) + '/planted', 'w')",
        "os.mkdir(os.path.dirname(path) + '/planted')",
        "os.symlink('/', os.path.dirname(path) + '/planted')",
    )
    for secret in prison.secrets:
        for attempt in attempts:
            prison.attempt(f"import os, sys; path = sys.argv[1]; {attempt}", secret)
            assert secret.read_text() == CANARY, attempt
            assert not os.path.lexists(secret.parent / "planted"), attempt


@pytest.mark.parametrize("directory", ["/", "/usr", "/etc", "/var", "/opt", str(Path(landlock.__file__).parent)])
def test_what_is_seen_cannot_be_written(prison: Prison, directory: str) -> None:
    name = f"hive-{uuid.uuid4()}"
    assert "Error" in prison.attempt("import sys; open(sys.argv[1], 'w')", f"{directory}/{name}")
    assert not (Path(directory) / name).exists()


def test_its_own_sandbox_can_be_worked_in_with_git_a_shell_and_an_interpreter(prison: Prison) -> None:
    work = "git init -q . && echo word > file && mkdir -p a/b && mv file a/b/ && git add . && git commit -qm word"
    prison.say("sh", "-ec", f"{work} && git log --format=%s && rm -r a && ls -a / > /dev/null || true")
    assert prison.say("git", "log", "--format=%s") == "word"
    assert (prison.own / ".git" / "HEAD").exists()
    assert prison.say(sys.executable, "-c", "import hivekeeper.domain, json; print('here')") == "here"
    assert prison.say("sh", "-c", "pwd; echo $HOME").split("\n") == [str(prison.own)] * 2
    assert prison.say("sh", "-c", "echo word > /dev/null && head -c 4 /dev/urandom | wc -c") == "4"


def test_what_a_run_answers_is_what_is_answered(prison: Prison) -> None:
    assert prison.run("sh", "-c", "exit 42").returncode == 42


def test_it_has_no_privileges_and_cannot_gain_any(prison: Prison) -> None:
    status = dict(line.split(":", 1) for line in prison.say("cat", "/proc/self/status").splitlines())
    assert int(status["CapEff"], 16) == int(status["CapPrm"], 16) == 0
    assert status["NoNewPrivs"].strip() == "1"
    outside = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    pythons_own = 1 << (signal.SIGPIPE - 1) | 1 << (signal.SIGXFSZ - 1)  # which it gives back to whom it starts
    assert int(status["SigIgn"], 16) == int(outside["SigIgn"], 16) & ~pythons_own, "a sandbox makes nobody deaf"


def test_the_environment_of_others_cannot_be_read(prison: Prison, victim: "subprocess.Popen[bytes]") -> None:
    look = (
        "import glob\nfor path in glob.glob('/proc/*/environ'):\n  try: print(open(path).read())\n  except OSError: 0"
    )
    with victim:
        assert CANARY not in prison.attempt(look)
        victim.kill()


def test_others_cannot_be_seen(cell: Prison, victim: "subprocess.Popen[bytes]") -> None:
    with victim:
        assert CANARY not in cell.say("sh", "-c", "cat /proc/[0-9]*/cmdline")
        victim.kill()


def test_others_cannot_be_killed_or_traced(prison: Prison, victim: "subprocess.Popen[bytes]") -> None:
    if prison.isolation.level is Level.LANDLOCK and landlock.read_version() < landlock.WITH_SCOPES:
        need(
            condition=False,
            why="the Landlock of this kernel does not keep signals in (docs/explain/sandbox.md says so)",
        )
    trace = f"import ctypes, sys; print('traced', ctypes.CDLL(None).ptrace({PTRACE_SEIZE}, int(sys.argv[1]), 0, 0))"
    with victim:
        prison.attempt("import os, sys; os.kill(int(sys.argv[1]), 9)", victim.pid)
        assert "traced -1" in prison.attempt(trace, victim.pid)
        prison.attempt("import os; os.kill(-1, 9)") if prison.isolation.level is Level.NAMESPACES else None
        assert victim.poll() is None
        victim.kill()


@pytest.mark.parametrize("door", ["/proc/1/root", "/proc/self/root", "/proc/1/cwd", "/proc/{outside}/root"])
def test_no_door_of_proc_leads_out(prison: Prison, door: str) -> None:
    for secret in prison.secrets:
        assert CANARY not in prison.attempt(READ, f"{door.format(outside=os.getpid())}{secret}")


def test_nothing_is_unmounted_mounted_or_made_writable(prison: Prison) -> None:
    home, secret = prison.home, prison.secrets[0]
    attempts = (
        f"umount -l {home}; umount -l /tmp; umount -R /",
        f"mount -t tmpfs none {home}",
        "mount -o remount,bind,rw /",
        f"mount --bind / {prison.own}",
        "mount -t proc proc /proc",
    )
    for attempt in attempts:
        for way in (["sh", "-c"], ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c"]):
            done = prison.run(*way, f"{attempt}; cat {secret} {prison.own}{secret}; touch /etc/hive-planted")
            assert CANARY not in done.stdout, attempt
            assert not Path("/etc/hive-planted").exists(), attempt
    assert not os.path.ismount(home)


def test_no_chroot_leads_out(prison: Prison) -> None:
    out = (
        "import os, sys; os.mkdir('x'); os.open('.', 0); os.chroot('x'); [os.chdir('..') for _ in range(64)]; "
        "os.chroot('.'); print(open(sys.argv[1]).read())"
    )
    for secret in prison.secrets:
        done = prison.run("unshare", "--user", "--map-root-user", sys.executable, "-I", "-S", "-c", out, str(secret))
        assert CANARY not in done.stdout
        assert CANARY not in prison.attempt(out, secret)


def test_devices_can_be_neither_opened_nor_made(prison: Prison) -> None:
    assert "made" not in prison.attempt("import os; os.mknod('disk', 0o60600, os.makedev(254, 0)); print('made')")
    assert "made" not in prison.attempt("import os; os.mknod('memory', 0o20600, os.makedev(1, 1)); print('made')")
    devices = [str(path) for path in Path("/dev").iterdir() if path.is_block_device() or path.name in ("mem", "kmsg")]
    assert devices
    for device in devices:
        assert "opened" not in prison.attempt(
            "import os, sys; os.open(sys.argv[1], os.O_RDONLY); print('opened')", device
        )


def test_shared_memory_is_not_shared(prison: Prison) -> None:
    name = f"hive-{uuid.uuid4()}"
    (SHARED / f"{name}-outside").write_text(CANARY)
    try:
        prison.attempt("import sys; open('/dev/shm/' + sys.argv[1], 'w').write('x')", name)
        assert not (SHARED / name).exists()
        assert CANARY not in prison.attempt(READ, SHARED / f"{name}-outside")
    finally:
        (SHARED / f"{name}-outside").unlink()


def test_the_terminal_cannot_be_opened_or_typed_into(cell: Prison) -> None:
    code = (
        "import fcntl, os, termios\n"
        "for path in ('/dev/tty', 0):\n"
        "  try: fcntl.ioctl(os.open(path, os.O_RDWR) if path else 0, termios.TIOCSTI, b'x'); print('typed')\n"
        "  except OSError as error: print(error)"
    )
    terminal, inside = pty.openpty()
    # Its own session with the terminal as the controlling one: as if a person had started it in a shell.
    started = (
        "import fcntl, os, sys, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0); os.execvp(sys.argv[1], sys.argv[1:])"
    )
    argv = cell.wrap([sys.executable, "-I", "-S", "-c", code])
    done = subprocess.run(
        [sys.executable, "-c", started, *argv],
        stdin=inside,
        capture_output=True,
        text=True,
        env=cell.environment(),
        cwd=cell.root,
        start_new_session=True,
        check=True,
    )
    assert "typed" not in done.stdout
    assert done.stdout.count("Errno") == 2
    assert not select.select([terminal], [], [], 0)[0]
    os.close(inside)
    os.close(terminal)


def test_nothing_outlives_the_outermost_process(cell: Prison) -> None:
    orphan = (
        "import os, signal\n"
        "if os.fork() == 0:\n"
        "  os.setsid()\n"
        "  if os.fork() == 0: signal.alarm(60); print('orphan', flush=True); signal.pause()\n"
        "  os._exit(0)\n"
        "signal.alarm(60); signal.pause()"
    )
    argv = cell.wrap([sys.executable, "-I", "-S", "-c", orphan])
    with subprocess.Popen(argv, stdout=subprocess.PIPE, env=cell.environment(), cwd=cell.root) as outermost:
        assert outermost.stdout is not None
        assert outermost.stdout.readline() == b"orphan\n"
        outermost.kill()
        ready, _, _ = select.select([outermost.stdout], [], [], 10)
        assert ready, "the orphan still holds its end"
        assert outermost.stdout.read() == b""


def test_a_home_that_is_hidden_has_nothing_in_it(cell: Prison) -> None:
    seen = set(json.loads(cell.attempt("import json, os; print(json.dumps(os.listdir('/home')))")))
    on_the_way = {Path(sys.prefix).parts[2]} if Path(sys.prefix).is_relative_to("/home") else set()
    assert seen <= on_the_way, "nothing but the way to the toolchain"
