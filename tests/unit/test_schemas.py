"""The JSON Schemas for editors say what the parsers say: what loads fits, and what does not fit does not load."""

import re
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from hivekeeper.config.located import Problems, parse_toml, parse_yaml
from hivekeeper.config.plans import load_plan
from hivekeeper.config.schemas import MEANINGS, make_plan_schema, make_settings_schema
from hivekeeper.config.settings import load_settings
from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.errors import InputError
from tests.unit.test_plan_keys import EVERY_KEY, REPO, TASK

ROOT = Path(__file__).parents[2]
PLAN, SETTINGS = make_plan_schema(), make_settings_schema()
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
EXAMPLES = {
    f"{page.name}-{kind}-{number}": (kind, text)
    for page in PAGES
    for kind in ("yaml", "toml")
    for number, text in enumerate(re.findall(rf"```{kind}\n(.*?)```", page.read_text("utf-8"), re.DOTALL))
}
ONE = "tasks: [{id: A, command: x}]"


def find_misfits(kind: str, text: str) -> list[str]:
    """Find what a schema has against a file."""
    problems = Problems("file", "")
    located = parse_yaml(text, problems) if kind == "yaml" else parse_toml(text, problems)
    found = Draft7Validator(PLAN if kind == "yaml" else SETTINGS).iter_errors(located.data)
    return [f"{error.json_path}: {error.message}" for error in found]


def loads(directory: Path, kind: str, text: str) -> bool:
    path = directory / ("plan.yaml" if kind == "yaml" else "hive.toml")
    path.write_text(text)
    try:
        load_plan(path) if kind == "yaml" else load_settings(directory)
    except InputError:
        return False
    return True


@pytest.mark.parametrize("schema", [PLAN, SETTINGS])
def test_they_are_schemas(schema: dict[str, Any]) -> None:
    Draft7Validator.check_schema(schema)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_of_the_documents_fits(tmp_path: Path, name: str) -> None:
    kind, text = EXAMPLES[name]
    assert find_misfits(kind, text) == []
    assert loads(tmp_path, kind, text)


def test_plans_and_settings_with_every_key_fit() -> None:
    assert find_misfits("yaml", EVERY_KEY) == []
    assert find_misfits("toml", DEFAULT_TOML) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("yaml", "convoy: c\ndefaults: {runner: [claude, codex], timeout: 1.5d, silence: 90, memory: 2 gib}\n" + ONE),
        ("yaml", "convoy: c\ndefaults: {disk: 1KB, output_limit: 7, processes: none, budget: {money: 0.5}}\n" + ONE),
        ("yaml", "convoy: 0.a-b_c\nrepos: {a: {path: a, regenerate: {uv.lock: uv lock}, gate: ['*.cfg']}}\n" + ONE),
        ("yaml", "convoy: c\nrepos: {a: {path: ../a}}\ntasks: [{id: A.b, command: x, repo: a, paths: [./a//b/, '*']}]"),
        ("yaml", TASK.format("command: x", "outputs: [./out/a.md, .github/x, a..b]")),
        ("toml", '[limits]\ntimeout = "none"\nsilence = 5\noutput = "64 MB"\nmemory = 1024\nprocesses = 7'),
        ("toml", '[sandbox]\nlevel = "limits"\nrequire = "none"\nread = ["~/x"]\n[queue]\nparallel = "cores"'),
        ("toml", '[budget]\nmoney = 0.5\ntokens = "none"\n[prices.x]\ninput = 1\noutput = 2.5\ncache_read = 0'),
        ("toml", '[mail.types.alarm]\nlike = "inform"\npayload = {n = "integer?"}\nurgent = true'),
        ("toml", '[runners.claude]\nvia = "acp"\nmcp = {a = ["x", "y"]}\n[runners.x]\nlike = "codex"'),
    ],
)
def test_what_loads_fits(tmp_path: Path, kind: str, text: str) -> None:
    assert loads(tmp_path, kind, text), text
    assert find_misfits(kind, text) == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        *(
            ("yaml", TASK.format(first, second))
            for first, second in (
                ("comand: x", "title: x"),
                ("command: x", "prompt: y"),
                ("title: x", "idempotent: true"),
                ("prompt: x", "runner: 5"),
                ("prompt: x", "runner: []"),
                ("command: x", "runner: claude"),
                ("command: x", "paths: [src]"),
                ("command: x", "verify: y"),
                ("command: x", "outputs: out"),
                ("command: x", "outputs: [/out]"),
                ("command: x", "output: a/../b"),
                ("command: x", "output: .git/x"),
                ("command: x", "output: ."),
                ("command: x", "agent: Ann"),
                ("command: x", "agent: a.lock"),
                ("command: x", "strengths: [ok, 'no no']"),
                ("command: x", "budget: 5"),
                ("command: x", "budget: {tokens: 0}"),
                ("command: x", "budget: {money: 0}"),
                ("command: x", "budget: {token: 5}"),
                ("command: x", "processes: 0"),
                ("command: x", "disk: much"),
                ("command: x", "timeout: 5 hours"),
                ("command: x", "timeout: -1"),
                ("command: x", "timeout: ''"),
                ("command: x", "attempts: 0"),
                ("command: x", "attempts: '3'"),
                ("command: x", "priority: 1001"),
                ("command: x", "idempotent: 1"),
                ("command: x", "after: A"),
                ("prompt: ' '", "runner: claude"),
                ("command: x\n    agent: a", "strengths: [b]"),
                ("command: x\n    output: a", "outputs: [b]"),
            )
        ),
        *(
            ("yaml", REPO.format(said))
            for said in (
                "branch: main",
                "{path: a, url: 'https://h/a'}",
                "url: ../lib",
                "url: 'ext::sh -c x'",
                "{path: a, setup: ' '}",
                "{path: a, keep: .venv}",
                "{path: a, keep: [/x]}",
                "{path: a, lock: [a, ../b]}",
                "{path: a, publish: never}",
                "{path: a, pth: b}",
            )
        ),
        ("yaml", "convoy: -c\n" + ONE),
        ("yaml", "convoy: a..b\n" + ONE),
        ("yaml", "convoy: c\nrepos: {A: {path: a}}\n" + ONE),
        ("yaml", "convoy: c\naccept: ''\n" + ONE),
        ("yaml", "convoy: c\ntasks: []"),
        ("yaml", "convoy: c\ntasks: [{id: a b, command: x}]"),
        ("yaml", ONE),
        ("toml", "[hive]\nworkes = 3"),
        ("toml", "[hve]\nworkers = 3"),
        ("toml", "[hive]\nworkers = 0"),
        ("toml", "[hive]\nworkers = 1.5"),
        ("toml", '[hive]\narchive_after = "soon"'),
        ("toml", '[limits]\noutput = "much"'),
        ("toml", "[limits]\nprocesses = -1"),
        ("toml", '[keeper]\npoll = "none"'),
        ("toml", '[sandbox]\nlevel = "none"'),
        ("toml", '[sandbox]\nread = "~/x"'),
        ("toml", '[queue]\nparallel = "all"'),
        ("toml", "[budget]\nmoney = 0"),
        ("toml", '[patterns]\nmail = "yes"'),
        ("toml", "[prices.x]\ninput = 1"),
        ("toml", "[prices.x]\ninput = -1\noutput = 1"),
        ("toml", "[runners.x]\ncommand = ''"),
        ("toml", "[runners.x]\ncommand = 'a'\nprompt = 'fax'"),
        ("toml", "[runners.x]\ncomand = 'a'"),
        ("toml", "[mail.types.x]\nroutes = 'worker -> person'"),
    ],
)
def test_what_does_not_fit_does_not_load(tmp_path: Path, kind: str, text: str) -> None:
    assert find_misfits(kind, text) != []
    assert not loads(tmp_path, kind, text), text


def read_meanings() -> dict[str, set[str]]:
    """Read what the reference says of each key: the last cell of its row, by the first."""
    cells: dict[str, set[str]] = {}
    lines = (ROOT / "docs" / "plans.md").read_text("utf-8").splitlines()
    for line in (line for line in lines if line.startswith("| `")):
        key, *_, meaning = line.removeprefix("| ").removesuffix(" |").split(" | ")
        meaning = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", meaning).removeprefix("| ")  # links are no help in an editor
        cells.setdefault(key, set()).add(re.sub(r" \(more\)$|: see the next rows$", "", meaning))
    return cells


@pytest.mark.parametrize("name", MEANINGS)
def test_every_key_says_what_the_reference_says(name: str) -> None:
    tables = {"Price": "prices.NAME", "Runner": "runners.NAME", "MailType": "mail.types.NAME"}
    table = tables.get(name) or (name.lower() if name in ("Mail", "Budget") else "")
    said = read_meanings()
    for key, meaning in MEANINGS[name].items():
        assert meaning in said[f"`[{table}]` `{key}`" if table else f"`{key}`"], key


@pytest.mark.parametrize("schema", [PLAN, SETTINGS])
def test_every_key_has_a_description(schema: dict[str, Any]) -> None:
    without = [
        f"{name}.{key}"
        for name, part in {"": schema, **schema["definitions"]}.items()
        for key, said in part["properties"].items()
        if "description" not in said and not (schema is SETTINGS and not name)
    ]
    assert without == []
