"""Records `hive demo` in a pseudo-terminal and writes docs/images/demo.svg, the picture in the README.

`make recording` runs it. The text is the program's own; only the timing is edited: pauses are shortened, pages of text
scroll slowly, and a long recording is sped up.
"""

import codecs
import fcntl
import getpass
import os
import pty
import re
import socket
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path

from tests.recording.svg import Frame, draw_svg
from tests.recording.terminal import COLUMNS, LINES, Screen

RECORDING = Path(__file__).parents[2] / "docs" / "images" / "demo.svg"
COMMAND = ("hive", "demo", "--tasks", "6", "--workers", "4")  # small, so that it fits the screen
SCRATCH = "/tmp/hive-demo"  # noqa: S108 - shown in place of the demo's temporary directory
MAX_BYTES = 200_000

_SAME_WRITE_S = 0.1  # reads this close together are one write; a live display is drawn four times a second
_KEY_S, _LINES_S, _MAX_PAUSE_S = 0.06, 0.12, 0.6
_LINES_AT_ONCE = 2
_BEFORE_COMMAND_S = 0.9  # time to read what the last command printed
_MAX_S, _LAST_FRAME_S = 20.5, 4.0
_NOT_INHERITED = {"COLUMNS", "LINES", "NO_COLOR", "CI"}  # they change what rich prints
_ERASE_LINE = "\x1b[2K"

Write = tuple[float, str]  # seconds since the write before, and the text


def main() -> None:
    """Record the demo; write the SVG unless it is too large or shows where it was made."""
    frames = cut(chain(type_command(), edit_timing(split(record()))))
    svg = draw_svg(frames, "hive demo")
    size = len(svg.encode())
    if private := find_private(svg, (getpass.getuser(), socket.gethostname(), str(Path.home()))):
        sys.exit(f"Not written: the recording shows {', '.join(private)}.")
    if size > MAX_BYTES:
        sys.exit(f"Not written: the recording has {size} bytes, more than {MAX_BYTES}.")
    RECORDING.parent.mkdir(exist_ok=True)
    RECORDING.write_text(svg, "utf-8")
    seconds = sum(frame.seconds for frame in frames)
    sys.stdout.write(f"{RECORDING}: {len(frames)} frames, {seconds:.0f} s, {size} bytes\n")


def record() -> Iterator[Write]:
    """Run the demo in a pseudo-terminal and yield what it writes; exit if the demo fails."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    inherited = {name: value for name, value in os.environ.items() if name not in _NOT_INHERITED}
    places = {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}", "TMPDIR": str(Path(SCRATCH).parent)}
    terminal = {"TERM": "xterm-256color", "LANG": "C.UTF-8", "TZ": "UTC"}
    process = subprocess.Popen(
        COMMAND, stdin=theirs, stdout=theirs, stderr=theirs, env={**inherited, **places, **terminal}
    )
    os.close(theirs)
    decoder, text, before = codecs.getincrementaldecoder("utf-8")(), "", time.monotonic()
    while chunk := _read(ours):
        now, text = time.monotonic(), decoder.decode(chunk)
        yield now - before, text
        before = now
    os.close(ours)
    if code := process.wait():
        sys.exit(f"Not written: the demo failed with exit code {code}; its last output:\n{text}")


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 65536)
    except OSError:  # the last process that had the terminal open has ended
        return b""


def split(recording: Iterable[Write]) -> Iterator[Write]:
    """Join the parts of one write, and split pages of text into a few lines each."""
    waited_s, joined = 0.0, ""
    for gap_s, text in (*recording, (_MAX_PAUSE_S, "")):
        if gap_s > _SAME_WRITE_S and joined:
            for part in _split_page(joined):
                yield waited_s, part
                waited_s = 0.0
            joined = ""
        waited_s += gap_s
        joined += text


def _split_page(text: str) -> list[str]:
    """Split whole lines only: a live display ends within a line, and is drawn at once."""
    if not text.endswith("\n"):
        return [text]
    erased, erase, page = text.rpartition(_ERASE_LINE)
    lines = page.splitlines(keepends=True)
    first, *rest = ("".join(lines[at : at + _LINES_AT_ONCE]) for at in range(0, len(lines), _LINES_AT_ONCE))
    return [erased + erase + first, *rest]


def edit_timing(writes: Iterable[Write]) -> Iterator[Write]:
    """Shorten pauses, leave time to read before each command, and hide the temporary directory's name."""
    for gap_s, text in writes:
        pause_s = _BEFORE_COMMAND_S if re.search(r"^(\$|\*\*\*) ", text, re.MULTILINE) else _LINES_S
        yield max(pause_s, min(gap_s, _MAX_PAUSE_S)), re.sub(rf"{SCRATCH}-\w+", SCRATCH, text)


def type_command() -> Iterator[Write]:
    """Type the command at a prompt."""
    yield 0.0, "\x1b[2m$\x1b[0m "
    yield 0.8, ""
    yield from ((_KEY_S, character) for character in " ".join(COMMAND))
    yield 0.4, "\r\n"


def cut(writes: Iterable[Write]) -> list[Frame]:
    """Make a frame of every state of the screen, and speed all of them up to fit into the time."""
    screen = Screen()
    frames = [Frame(screen.show(), 0.0)]
    for seconds, text in writes:
        frames[-1] = frames[-1]._replace(seconds=frames[-1].seconds + seconds)
        screen.feed(text)
        if (picture := screen.show()) != frames[-1].picture:
            frames.append(Frame(picture, 0.0))
    speed = min(1.0, _MAX_S / sum(frame.seconds for frame in frames))
    moving = [Frame(picture, seconds * speed) for picture, seconds in frames[:-1] if seconds]
    return [*moving, Frame(frames[-1].picture, _LAST_FRAME_S)]


def find_private(text: str, names: Iterable[str]) -> list[str]:
    """Find these names, and every absolute path outside the demo's directory."""
    paths = {path for path in re.findall(r"(?<![\w/<.])/\w[\w/.-]*", text) if not path.startswith(SCRATCH)}
    return sorted(paths | {name for name in names if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", text)})


if __name__ == "__main__":
    main()
