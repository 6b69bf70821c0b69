"""A plan that is written loads as what was written, and shows an editor nothing that it hides."""

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from hivekeeper.config.located import Problems
from hivekeeper.config.plan_text import write_plan
from hivekeeper.config.plans import read_plan

TEXT = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1).filter(lambda text: text.strip())


@given(TEXT, TEXT)
def test_whatever_a_plan_says_it_says_the_same_when_it_is_read(prompt: str, title: str) -> None:
    plan = {"convoy": "c", "tasks": [{"id": "a", "title": title, "prompt": prompt, "runner": "r"}]}
    text = write_plan(plan, [prompt])
    [task] = read_plan(text, Path("plan.yaml"), Problems("plan.yaml", "")).tasks
    assert (task.prompt, task.title) == (prompt, title)
    assert text.replace("\n", "").isprintable()


def test_text_of_several_lines_is_written_in_lines() -> None:
    text = write_plan({"tasks": [{"prompt": "Größe ändern:\n\n- so # und so\n"}]}, ["A plan", "for you"])
    assert text == "# A plan\n# for you\ntasks:\n- prompt: |\n    Größe ändern:\n\n    - so # und so\n"
