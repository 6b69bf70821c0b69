"""A run's words are the same again wherever its hive lies, and somebody else's words are left alone."""

import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.places import Places
from tests.property.budget import tries

HERE, THERE = Places(Path("/home/me/hive")), Places(Path("/srv/moved"))
WORDS = st.one_of(
    st.text(),
    st.sampled_from(["{hive}", "{{hive}/a", "{", "{{", "{package}/x", "{python}", "/home/me/hives", "sh", ""]),
    st.text().map(lambda rest: f"{HERE.root}{rest}"),
    st.text().map(lambda rest: f"{{hive}}{rest}"),
)


@given(word=WORDS)
@tries(300)
def test_a_word_that_was_named_and_resolved_is_the_same(word: str) -> None:
    assert HERE.resolve(HERE.name(word)) == word


def test_a_path_below_the_hive_is_found_again_where_the_hive_was_moved() -> None:
    assert HERE.name(str(HERE.sandbox("c/t", 1))) == "{hive}/.hive/sandboxes/c/t.1"
    assert THERE.resolve(HERE.name(str(HERE.sandbox("c/t", 1)))) == str(THERE.sandbox("c/t", 1))
    assert HERE.name(sys.executable) == "{python}"
    assert THERE.resolve("{hive}") == str(THERE.root)
