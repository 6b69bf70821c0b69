"""How a table fits a terminal: one line a row, texts cut first, names and states never broken."""

from collections.abc import Collection, Mapping, Sequence

from rich.cells import cell_len, set_cell_size

GAP = "  "
ANY_WIDTH = 1_000_000  # of what is not a terminal: nothing is cut there
_ROOMY = 16  # a text is not cut shorter than this while there is a column to leave out
NARROWEST = 8


def measure(rows: Sequence[Mapping[str, str]], headings: Mapping[str, str]) -> dict[str, int]:
    """Measure each column: its longest cell, or its heading."""
    return {key: max(map(cell_len, (heading, *(row[key] for row in rows)))) for key, heading in headings.items()}


def fit(natural: Mapping[str, int], width: int, texts: Collection[str], spare: Sequence[str] = ()) -> dict[str, int]:
    """Decide how wide the columns are, given how wide each would be; one that is missing has no room.

    Columns of `texts` are cut first. If that is not enough, those of `spare` are left out, in this order. If the others
    still leave no room for texts, the widest get less than they need, and a long name stands out of its column.
    """
    shown = dict(natural)
    for key in spare:
        if _need(shown, texts, _ROOMY) <= width:
            break
        shown.pop(key, None)
    others = {key: size for key, size in shown.items() if key not in texts}
    is_crowded = _need(shown, texts, NARROWEST) > width
    while is_crowded and _need(shown, texts, _ROOMY) > width and (widest := max(others.values(), default=0)) > 1:
        key = next(key for key, size in others.items() if size == widest)
        shown[key] = others[key] = widest - 1
    free = width - _need(shown, texts, 0)
    short_first = sorted(shown.keys() & texts, key=lambda key: (shown[key], key))
    for left, key in zip(range(len(short_first), 0, -1), short_first, strict=True):
        shown[key] = min(shown[key], max(free // left, 1))
        free -= shown[key]
    return shown


def _need(widths: Mapping[str, int], texts: Collection[str], least: int) -> int:
    """Tell how wide a table is whose texts are cut down to the least."""
    cells = (min(size, least) if key in texts else size for key, size in widths.items())
    return sum(cells) + len(GAP) * (len(widths) - 1)


def lay_out(row: Mapping[str, str], widths: Mapping[str, int], width: int, texts: Collection[str]) -> list[str]:
    """Lay out a row: texts cut, everything else whole. A row too long for the terminal goes on in its next line."""
    *others, last = widths
    cells = [pad(cut(row[key], widths[key]) if key in texts else row[key], widths[key]) for key in others]
    before = GAP.join((*cells, ""))
    cells.append(cut_after(before, row[last], width).removeprefix(before) if last in texts else row[last])
    return cells


def cut_after(before: str, text: str, width: int) -> str:
    """Put a text after another, cut to what is left of the line, or of the next one where next to nothing is left."""
    left = width - cell_len(before) % width
    return before + cut(text, left if left >= NARROWEST else left + width)


def cut(text: str, width: int) -> str:
    """Cut a text that is wider than its place, and show that it was."""
    return text if cell_len(text) <= width else f"{set_cell_size(text, max(width - 1, 0)).rstrip()}…"


def pad(text: str, width: int) -> str:
    """Fill a cell up to its column's width; a longer one stays whole."""
    return text + " " * (width - cell_len(text))
