"""A terminal emulator for the few control sequences that `hive` writes. Any other sequence is an error."""

import re
from typing import NamedTuple

COLUMNS, LINES = 96, 29
# The SGR codes that `hive` uses, and the CSS class of each.
STYLES = {"1": "b", "2": "d", "31": "r", "32": "g", "33": "y", "35": "m", "36": "c"}
_TOKEN = re.compile(r"\x1b\[[?\d;]*[A-Za-z]|[^\x1b]")


class Cell(NamedTuple):
    """A character and its CSS classes."""

    character: str = " "
    style: str = ""


Row = tuple[Cell, ...]
Picture = tuple[Row, ...]


class Screen:
    """Every line written so far, and the cursor. The last `LINES` lines are visible; only they can change."""

    def __init__(self) -> None:
        self._rows: list[list[Cell]] = [[]]
        self._row = self._column = 0
        self._style: tuple[str, ...] = ()

    def show(self) -> Picture:
        """Show the visible lines, without trailing blanks."""
        return tuple(_strip(row) for row in self._rows[self._top :])

    def feed(self, text: str) -> None:
        """Write text and control sequences to the terminal."""
        tokens = _TOKEN.findall(text)
        if "".join(tokens) != text:
            raise ValueError(f"Incomplete control sequence: {text!r}")
        for token in tokens:
            self._take(token)

    @property
    def _top(self) -> int:
        return max(0, len(self._rows) - LINES)

    def _take(self, token: str) -> None:
        match token:
            case "\r":
                self._column = 0
            case "\n":
                self._move_down()
            case "\x1b[2K":
                self._rows[self._row] = []
            case "\x1b[1A":
                self._row = max(self._top, self._row - 1)
            case "\x1b[?25l" | "\x1b[?25h":  # the cursor is not drawn
                pass
            case _ if token.startswith("\x1b["):
                self._restyle(token)
            case _:
                self._put(token)

    def _restyle(self, token: str) -> None:
        codes = token[2:-1].split(";")
        if token[-1] != "m" or set(codes) - {"0", *STYLES}:
            raise ValueError(f"Unknown control sequence: {token!r}")
        for code in codes:
            self._style = () if code == "0" else (*self._style, STYLES[code])

    def _put(self, character: str) -> None:
        if not character.isprintable():
            raise ValueError(f"Unknown control character: {character!r}")
        if self._column == COLUMNS:
            self._column = 0
            self._move_down()
        row = self._rows[self._row]
        row += [Cell()] * (self._column + 1 - len(row))
        row[self._column] = Cell(character, " ".join(self._style))
        self._column += 1

    def _move_down(self) -> None:
        self._row += 1
        if self._row == len(self._rows):
            self._rows.append([])


def _strip(row: list[Cell]) -> Row:
    width = max((column for column, cell in enumerate(row, start=1) if cell.character != " "), default=0)
    return tuple(row[:width])
