"""The reference of plans and settings names every key there is, and no other; what it shows loads."""

import re
from pathlib import Path

import pytest

from hivekeeper.config import plans
from hivekeeper.config.located import Checked
from hivekeeper.config.plans import load_plan
from hivekeeper.config.settings import ORDER, TABLES, load_settings
from hivekeeper.config.template import write_value
from hivekeeper.runners import PRESETS
from hivekeeper.settings import key_of, list_settings

REFERENCE = (Path(__file__).parents[2] / "docs" / "plans.md").read_text()


def read_section(title: str) -> str:
    """Read what stands under a heading, up to the next one."""
    return re.split(r"^#+ ", REFERENCE.split(f"# {title}\n", 1)[1], maxsplit=1, flags=re.MULTILINE)[0]


def list_keys(title: str) -> set[str]:
    return set(re.findall(r"^\| `(\w+)` \|", read_section(title), re.MULTILINE))


MODELS: dict[str, tuple[type[Checked], set[str]]] = {
    "A plan": (plans.Plan, set()),
    "A repository": (plans._Repo, set()),  # noqa: SLF001 - the keys are what the models say
    "A task": (plans._Task, set(plans._Defaults.model_fields) - {"runner"}),  # noqa: SLF001 - as above
    "A task, or the defaults for all": (plans._Defaults, {"runner"}),  # noqa: SLF001 - as above
}


@pytest.mark.parametrize("title", MODELS)
def test_the_reference_names_every_key_of_a_plan_and_no_other(title: str) -> None:
    model, elsewhere = MODELS[title]
    assert list_keys(title) == set(model.model_fields) - elsewhere


def test_the_reference_names_both_keys_of_a_budget() -> None:
    lines = [line for line in REFERENCE.splitlines() if line.startswith("| `budget` |")]
    assert len(lines) == 2, "of a plan, and of a task"
    assert all(f"`{key}`" in line for line in lines for key in plans._Budget.model_fields)  # noqa: SLF001 - as above


def test_the_reference_names_every_key_of_the_settings_and_no_other() -> None:
    named = re.findall(r"^\| `\[(\w+)(?:\.NAME)?\]` `(\w+)` \|", read_section("hive.toml"), re.MULTILINE)
    assert named == [(table, key) for table in ORDER for key in TABLES[table].model_fields]


def test_the_reference_says_of_every_setting_what_its_declaration_says() -> None:
    """What the assertion prints are the rows to put in."""
    rows = [
        f"| `[{how.table}]` `{key_of(each)}` | {write_value(each, how).strip(chr(34))} | "
        + how.sentence.replace('"', "`")
        + " |"
        for each, how in list_settings()
    ]
    assert [row for row in rows if row not in REFERENCE.splitlines()] == []


@pytest.mark.parametrize(("kind", "title"), [("yaml", "A plan"), ("toml", "hive.toml")])
def test_the_examples_of_the_reference_load(tmp_path: Path, kind: str, title: str) -> None:
    text = read_section(title).split(f"```{kind}\n")[1].split("```")[0]
    name = "plan.yaml" if kind == "yaml" else "hive.toml"
    (tmp_path / name).write_text(text)
    if kind == "yaml":
        assert len(load_plan(tmp_path / name, runners=("claude",)).tasks) == 3
    else:
        assert load_settings(tmp_path).runner_names == (*PRESETS, "other", "mine", "scripted")
