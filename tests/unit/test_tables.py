"""A table fits a terminal: texts are cut first, then columns are left out, and a name is whole whatever it costs."""

from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len

from hivekeeper.cli.tables import cut, fit, lay_out, measure

TASK, LONG = "auth-module/AUTH-140-refresh", "auth-module/" + "x" * 64
HEADINGS = {"task": "Task", "state": "State", "pid": "Process", "why": "Why"}
WHY = "the session store is next, and then the tests that still expect one token"


def draw(width: int, *rows: dict[str, str]) -> list[str]:
    widths = fit(measure(rows, HEADINGS), width, ("why",), ("pid",))
    return ["  ".join(lay_out(row, widths, width, ("why",))).rstrip() for row in rows]


def row(task: str, why: str = WHY, state: str = "PENDING") -> dict[str, str]:
    return {"task": task, "state": state, "pid": "1234", "why": why}


def test_a_table_that_fits_is_whole() -> None:
    assert draw(200, row(TASK)) == [f"{TASK}  PENDING  1234     {WHY}"]


def test_a_text_is_cut_first_and_then_a_column_is_left_out() -> None:
    assert draw(80, row(TASK)) == [f"{TASK}  PENDING  1234     the session store is next, and…"]
    assert draw(60, row(TASK)) == [f"{TASK}  PENDING  the session store is…"]


def test_a_long_name_is_whole_and_leaves_the_other_rows_in_one_line() -> None:
    one, other = draw(80, row(LONG), row(TASK, state="IN_PROGRESS"))
    assert one.startswith(f"{LONG}  PENDING      the session")
    assert one.endswith("expect one…")
    assert len(one) <= 2 * 80, "its text ends with the second line"
    assert other.startswith(TASK)
    assert other.endswith("IN_PROGRESS  the session sto…")
    assert len(other) == 80


def test_wide_characters_take_two_places() -> None:
    assert cut("図書館", 5) == "図書…"
    assert cut("図書館", 6) == "図書館"
    assert cell_len(draw(50, row(TASK, "図書館" * 20))[0]) <= 50


@given(
    natural=st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 90), min_size=1),
    width=st.integers(1, 200),
    texts=st.sets(st.sampled_from("abc")),
    spare=st.permutations("bcd"),
)
def test_columns_fit_unless_they_are_at_their_narrowest(
    natural: dict[str, int], width: int, texts: set[str], spare: list[str]
) -> None:
    widths = fit(natural, width, texts, spare)
    assert widths.keys() >= natural.keys() - set(spare)
    assert all(size <= natural[key] for key, size in widths.items())
    total = sum(widths.values()) + 2 * (len(widths) - 1)
    assert total <= width or all(size <= 1 for size in widths.values())
    if sum(natural.values()) + 2 * (len(natural) - 1) <= width:
        assert widths == natural
