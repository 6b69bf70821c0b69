"""Terminal frames as one animated SVG: a strip of frames that a CSS animation moves by one frame at a time.

There is no script and no downloaded font, so it plays inside an `<img>`. Without animation it shows the last frame.
"""

from collections.abc import Sequence
from itertools import groupby
from typing import NamedTuple
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

from tests.recording.terminal import COLUMNS, LINES, Picture, Row

_ADVANCE, _LEADING, _BASELINE = 8.4, 20, 15  # px, of a character of 14 px
_LEFT, _TOP, _BOTTOM = 24, 52, 20
_WIDTH, _HEIGHT = round(COLUMNS * _ADVANCE) + 2 * _LEFT, LINES * _LEADING + _TOP + _BOTTOM
_STYLE = """\
text{{font:14px ui-monospace,SFMono-Regular,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;fill:#c6cdd5}}
.b{{font-weight:700;fill:#eef1f4}}.d{{fill:#717b87}}.r{{fill:#ee8b85}}.g{{fill:#8ccf9b}}.y{{fill:#e0b75c}}\
.m{{fill:#c8a2e8}}.c{{fill:#82c0ea}}
#title{{font-size:13px;fill:#717b87}}
#strip{{animation:play {seconds:.2f}s step-end infinite}}
@keyframes play{{{steps}}}
@media(prefers-reduced-motion:reduce){{#strip{{animation:none}}}}"""
_SVG = "{http://www.w3.org/2000/svg}"


class Frame(NamedTuple):
    """What is visible, and for how long."""

    picture: Picture
    seconds: float


def draw_svg(frames: Sequence[Frame], title: str) -> str:
    """Draw all frames in a window. A line that occurs in many frames is drawn once."""
    names: dict[Row, str] = {}
    strip = [_draw_frame(number, frame, names) for number, frame in enumerate(frames)]
    seconds, at, steps = sum(frame.seconds for frame in frames), 0.0, ""
    for number, frame in enumerate(frames):
        steps += f"{at / seconds:.3%}{{transform:translateX({-number * _WIDTH}px)}}"
        at += frame.seconds
    dots = "".join(f'<circle cx="{_LEFT + 6 + 20 * dot}" cy="22" r="6" fill="#343c46"/>' for dot in range(3))
    size = f'width="{_WIDTH}" height="{_HEIGHT}"'
    return "\n".join((
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" {size}>',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE.format(seconds=seconds, steps=steps)}</style>",
        "<defs>",
        *(_draw_row(row, name) for row, name in names.items()),
        "</defs>",
        f'<rect x=".5" y=".5" width="{_WIDTH - 1}" height="{_HEIGHT - 1}" rx="10" fill="#12161c" stroke="#2b323b"/>',
        f'{dots}<text id="title" x="{_WIDTH / 2}" y="26.5" text-anchor="middle">{escape(title)}</text>',
        f'<svg y="{_TOP}" width="{_WIDTH}" height="{LINES * _LEADING}">',
        f'<g id="strip" transform="translate({-(len(frames) - 1) * _WIDTH})">',
        *strip,
        "</g></svg>",
        "</svg>\n",
    ))  # fmt: skip


def _draw_frame(number: int, frame: Frame, names: dict[Row, str]) -> str:
    uses = "".join(
        f'<use href="#{names.setdefault(row, f"r{len(names)}")}" y="{line * _LEADING}"/>'
        for line, row in enumerate(frame.picture)
        if row
    )
    return f'<g transform="translate({number * _WIDTH})">{uses}</g>'


def _draw_row(row: Row, name: str) -> str:
    """Draw a line; each text has its position and length, so columns align in any font."""
    texts, column = "", 0
    for style, cells in groupby(row, key=lambda cell: cell.style):
        words = "".join(cell.character for cell in cells)
        for word in words.split("  "):
            if text := word.strip():
                x, length = _LEFT + (column + word.index(text)) * _ADVANCE, len(text) * _ADVANCE
                of_style = f' class="{style}"' if style else ""
                texts += f'<text x="{x:.5g}" y="{_BASELINE}" textLength="{length:.4g}"{of_style}>{escape(text)}</text>'
            column += len(word) + 2
        column -= 2
    return f'<g id="{name}">{texts}</g>'


def read_svg(svg: str) -> list[list[str]]:
    """Read the lines of every frame back, without empty ones."""
    root = ET.fromstring(svg)  # noqa: S314 - our own file
    rows = {group.get("id", ""): _read_row(group) for group in root.iterfind(f"{_SVG}defs/{_SVG}g")}
    strip = root.iterfind(f"{_SVG}svg/{_SVG}g/{_SVG}g")
    return [[rows[use.get("href", "")[1:]] for use in frame] for frame in strip]


def _read_row(group: ET.Element) -> str:
    line = ""
    for text in group:
        column = round((float(text.get("x", "")) - _LEFT) / _ADVANCE)
        line = line.ljust(column) + (text.text or "")
    return line
