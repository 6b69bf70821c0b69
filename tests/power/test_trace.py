"""A record of strace is read right: replayed, it gives the very directory that the recorded programs left."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_strace
from tests.power.disk import replay
from tests.power.ops import Acknowledge, MakeDirectory, Op, Open, Rename, Sync, SyncAll, Write
from tests.power.trace import TraceError, parse_trace, record, strace_argv
from tests.power.tree import File, load_tree


@pytest.fixture(autouse=True)
def _strace() -> None:
    need_strace()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The directory that is recorded, with something in it from before."""
    made = tmp_path / "root"
    (made / "old").mkdir(parents=True)
    (made / "old" / "log").write_text("first line\n")
    (made / "tool").write_text("#!/bin/sh\n")
    (made / "tool").chmod(0o755)
    (made / "there").symlink_to("old")
    return made


def run(root: Path, *argv: str) -> list[Op]:
    """Record a command, and see that the record leads to what is really there."""
    start = load_tree(root)
    ops = record(argv, root, root.with_suffix(".log"), acknowledged_through=root.with_name("told"))
    assert replay(start, ops) == load_tree(root)
    return ops


def python(root: Path, script: str) -> list[Op]:
    return run(root, sys.executable, "-I", "-S", "-c", f"import os\n{script}")


def content(root: Path, name: str) -> bytes:
    node = load_tree(root)[name]
    assert isinstance(node, File)
    return node.content


def test_what_a_shell_does_to_files_is_followed(root: Path) -> None:
    run(
        root,
        *("sh", "-c"),
        """
        echo two >> old/log; echo new > new; echo newer >| new; mkdir -p a/b; mv new a/b/; cd a; echo rel > b/rel
        mv b ../c; ln -s rel ../c/link; ln ../c/rel ../c/hard; rm ../c/new; echo x >> ../c/hard; cp ../c/rel ../copy
        chmod +x ../copy; chmod -x ../tool; cat ../c/rel > ../cat; truncate -s 5000 ../cat; cd ..; rmdir a; : > old/log
        echo through > there/link; rm there; sync copy
        """,
    )


def test_writes_land_where_the_shared_offset_stands(root: Path) -> None:
    python(
        root,
        """
f = os.open("f", os.O_RDWR | os.O_CREAT)
os.write(f, b"0123456789")
os.lseek(f, 2, os.SEEK_SET)
os.read(f, 2)
os.write(f, b"DUP"[:1])
g = os.dup(f)
os.write(g, b"dup")
os.dup2(f, 77)
os.write(77, b"77")
os.writev(f, [b"vec", b"tor"])
os.pwrite(f, b"P", 0)
os.pwritev(f, [b"Q", b"R"], 6000)
os.lseek(f, -1, os.SEEK_END)
os.write(f, b"END")
""",
    )
    assert content(root, "f").startswith(b"P123Ddup77vector\0")
    assert content(root, "f").endswith(b"\0QEND")


def test_appends_land_at_the_end_whoever_wrote_last(root: Path) -> None:
    python(
        root,
        """
a = os.open("old/log", os.O_WRONLY | os.O_APPEND)
b = os.open("old/log", os.O_WRONLY | os.O_APPEND)
os.write(a, b"a"); os.write(b, b"b"); os.pwrite(a, b"c", 0)
""",
    )
    assert content(root, "old/log") == b"first line\nabc"


def test_an_open_file_is_followed_through_renames_and_past_its_removal(root: Path) -> None:
    ops = python(
        root,
        """
f = os.open("tmp", os.O_WRONLY | os.O_CREAT); os.write(f, b"one ")
os.rename("tmp", "final"); os.write(f, b"two ")
g = os.open("tmp", os.O_WRONLY | os.O_CREAT); os.write(g, b"another"); os.write(f, b"three")
os.rename("old", "moved")
h = os.open("gone", os.O_WRONLY | os.O_CREAT); os.unlink("gone"); os.write(h, b"nowhere")
d = os.open("moved", os.O_RDONLY); os.rename("log", "record", src_dir_fd=d, dst_dir_fd=d)
""",
    )
    assert content(root, "final") == b"one two three"
    assert Rename("moved/log", "moved/record") in ops


def test_a_child_writes_through_the_descriptor_it_inherited(root: Path) -> None:
    python(
        root,
        """
f = os.open("f", os.O_WRONLY | os.O_CREAT); os.set_inheritable(f, True)
os.write(f, b"parent ")
if os.fork() == 0:
    os.write(f, b"child ")
    os.execvp("sh", ["sh", "-c", f"echo grandchild >&{f}"])
os.wait()
os.write(f, b"parent")
""",
    )
    assert content(root, "f") == b"parent child grandchild\nparent"


def test_threads_share_descriptors_and_the_working_directory(root: Path) -> None:
    python(
        root,
        """
import threading
def work():
    global f; os.chdir("old")
    f = os.open("f", os.O_WRONLY | os.O_CREAT); os.write(f, b"thread -----"); os.lseek(f, 7, 0)
t = threading.Thread(target=work); t.start(); t.join()
os.write(f, b"main"); os.mkdir("here")
""",
    )
    assert content(root, "old/f") == b"thread main-"
    assert (root / "old/here").is_dir()


def test_two_processes_at_once_are_told_apart(root: Path) -> None:
    # In the file of both they take turns: of two writes at once a log tells both, and not which came first.
    append = 'flock 9; echo "$0 $i" >> both'
    loop = f"for i in 1 2 3 4 5 6 7 8 9; do ({append}) 9> turn; echo $i > $0.tmp; mv $0.tmp $0; done"
    run(root, "sh", "-c", f"sh -c '{loop}' one & sh -c '{loop}' two & wait")
    assert "<unfinished ...>" in root.with_suffix(".log").read_text()
    assert len(content(root, "both").splitlines()) == 18


def test_odd_names_and_odd_bytes_are_read_as_they_are(root: Path) -> None:
    python(root, r"""open(b'a, "b" <c>\n\xff) = 3', "wb").write(bytes(range(256)))""")
    assert content(root, os.fsdecode(b'a, "b" <c>\n\xff) = 3')) == bytes(range(256))


def test_copies_inside_the_kernel_are_followed_and_those_from_outside_refused(root: Path) -> None:
    script = """
f = os.open("{}", os.O_RDONLY); g = os.open("g", os.O_WRONLY | os.O_CREAT)
os.lseek(f, 6, 0); os.copy_file_range(f, g, 4); os.copy_file_range(f, g, 2, 1, 9); os.sendfile(g, f, 0, 3)
"""
    python(root, script.format("old/log"))
    assert content(root, "g") == b"linefir\0\0ir"
    root.with_name("outside").write_text("some secret")
    with pytest.raises(TraceError, match=r"copied to .*g.* from outside"):
        python(root, script.format("../outside"))


def test_a_file_written_through_memory_is_refused_and_shared_memory_of_sqlite_is_not_there(root: Path) -> None:
    script = "import mmap\nf = os.open('{}', os.O_RDWR | os.O_CREAT); os.ftruncate(f, 9); mmap.mmap(f, 9)[0] = 1"
    assert python(root, script.format("ledger.db-shm")) == []
    with pytest.raises(TraceError, match=r"'map'.* through memory"):
        python(root, script.format("map"))


def test_syncs_failures_and_acknowledgements_are_told_apart(root: Path) -> None:
    ops = python(
        root,
        """
f = os.open("f", os.O_WRONLY | os.O_CREAT); os.write(f, b"x"); os.fdatasync(f)
out = os.open("../told", os.O_WRONLY | os.O_CREAT); os.write(out, b"promised"); os.fsync(out)
for wrong in (lambda: os.rename("none", "f"), lambda: os.mkdir("old"), lambda: os.write(99, b"x")):
    try: wrong()
    except OSError: pass
d = os.open(".", os.O_RDONLY); os.fsync(d); os.sync()
s = os.open("s", os.O_WRONLY | os.O_CREAT | os.O_DSYNC); os.write(s, b"at once")
""",
    )
    told = [op for op in ops if not isinstance(op, Open)]
    file, directory, at_once = (op.file for op in ops if isinstance(op, Open) and op.path in {"f", ".", "s"})
    assert told == [
        *(Write(file, 0, b"x"), Sync(file), Acknowledge(b"promised"), Sync(directory), SyncAll()),
        *(Write(at_once, 0, b"at once"), Sync(at_once)),
    ]


def test_what_git_does_is_followed_to_the_byte(root: Path) -> None:
    script = """
    git init -q -b main repo && cd repo && echo a > a && mkdir d && echo b > d/b && chmod +x a && git add . &&
    git commit -qm one && git checkout -q -b side && echo c >> a && git commit -qam two && git checkout -q main &&
    git merge -q side && git gc -q && git clone -q . ../clone && git worktree add -q ../tree && git tag -a -m t t
    """
    run(root, "sh", "-ec", script)
    assert (root / "clone/d/b").read_text() == "b\n"


def test_a_running_process_is_recorded_from_the_moment_somebody_looks(root: Path) -> None:
    script = """
import os, sys, threading
log = os.open("old/log", os.O_WRONLY | os.O_APPEND); kept = os.open("kept", os.O_WRONLY | os.O_CREAT)
os.write(kept, b"before "); ready = threading.Event()
def work():
    ready.wait(); os.write(log, b"thread"); os.mkdir("made")
t = threading.Thread(target=work); t.start()
print("ready", flush=True); sys.stdin.read()
new = os.open("new", os.O_WRONLY | os.O_CREAT); os.write(new, b"new"); os.write(kept, b"after"); ready.set(); t.join()
"""
    argv = [sys.executable, "-I", "-S", "-c", script]
    with subprocess.Popen(argv, cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin
        assert process.stdout
        process.stdout.readline()
        start, log = load_tree(root), root.with_suffix(".log")
        attach = [argument for argument in strace_argv(log, pids=[process.pid]) if argument != "-qq"]
        with subprocess.Popen(attach, stderr=subprocess.PIPE, text=True) as strace:
            assert strace.stderr
            assert "attached" in strace.stderr.readline()
            process.stdin.close()
    ops = parse_trace(log.read_text(), root)
    assert replay(start, ops) == load_tree(root)
    assert MakeDirectory("made", 0o777) in ops


def test_a_log_that_is_not_from_strace_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="no line of strace"):
        parse_trace("hello\n", tmp_path)
