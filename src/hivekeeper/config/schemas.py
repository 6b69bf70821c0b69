"""JSON Schemas of plans and of hive.toml, for editors and for runners; made from the models that check them.

What one part says of another (dependencies, unique ids, known runners) only `load_plan` and `load_settings` check.
Draft 7 is what editors know best.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from hivekeeper.config.plans import NAME_PATTERN, Plan
from hivekeeper.config.settings import TABLES, File
from hivekeeper.config.template import write_value
from hivekeeper.settings import TABLES as DECLARED
from hivekeeper.settings import key_of, list_settings

Schema = dict[str, Any]
_DIALECT = "http://json-schema.org/draft-07/schema#"
# What a runner that makes a plan may say in it; where it runs, by whom and at what cost is a person's to say.
_ANSWERED: Mapping[str, Sequence[str]] = {
    "Plan": ("convoy", "accept"),
    "Repo": ("setup", "verify", "keep", "lock"),
    "Task": ("id", "title", "prompt", "command", "after", "verify", "paths", "outputs", "strengths", "priority"),
}
# What keys mean, as docs/plans.md says it; the other keys of hive.toml are declared with the settings.
MEANINGS: Mapping[str, Mapping[str, str]] = {
    "Plan": {
        "convoy": "the convoy's name: lower-case letters, digits, `.`, `_`, `-`",
        "accept": "a command for the whole convoy, run when all its tasks are complete",
        "budget": "what the convoy may cost, in `money` (dollars) and `tokens`; at the cap its tasks are parked until "
        "you raise it",
        "repos": "the git repositories that tasks may work on, by name",
        "defaults": "values for every task that does not set its own, including tasks added later with `hive task add`",
        "tasks": "the work; at least one",
    },
    "Repo": {
        "path": "its directory, relative to the plan; or use `url`",
        "url": "its URL: `https://host/lib.git`, `ssh://…`, `git@host:lib.git`. No passwords: the ledger would keep "
        "them",
        "branch": "the branch work starts from; `main`",
        "verify": "the gate: a command that must exit 0 on exactly the tree that lands",
        "setup": "a command that makes a fresh clone ready to work in",
        "keep": "directories that `setup` creates and could create again: cached, copied into later clones, never "
        "committed",
        "lock": "files that decide whether the cached directories can be reused: they can while these files are the "
        "same",
        "backup": "a second repository, path or URL, that all work is pushed to",
        "publish": "how what landed reaches your repository: `branch` (default: its branch `hive/BRANCH`), `push` "
        "(fast-forward BRANCH itself), `checkout` (fast-forward BRANCH in a clean checkout)",
        "gate": "files that decide what passes, as paths or patterns; a change to one waits for your approval. Files "
        "that `verify` and `setup` run are always included",
        "regenerate": "for files that a command generates, such as lock files: path and command. If two changes to "
        "such a file conflict, the command runs again",
    },
    "Defaults": {
        "runner": "who gets the prompt: a known program, one of `[runners]` in `hive.toml`, or `scripted`; or a list, "
        "of which the first without a hold is used. Not for a `command`",
        "attempts": "how many times it is tried; 3",
        "priority": "higher goes first; 0, from -1000 to 1000",
        "timeout": "time from start to end",
        "silence": "time without any output",
        "output_limit": "size of everything it prints",
        "memory": "memory of all its processes together",
        "processes": "processes alive at the same time",
        "disk": "size of its own directory",
        "budget": "what it may cost: `tokens`, `money`, or both. A task's own budget replaces the default one entirely",
    },
    "Task": {
        "id": "its name, unique in the convoy: letters, digits, `.`, `_`, `-`",
        "command": "a shell command; or use `prompt`",
        "prompt": "what to tell a runner: text of any length, up to 16 MiB for the whole plan",
        "repo": "the repository it works on, in its own clone",
        "title": "one line for people; also in the subject of the commit that lands",
        "after": "tasks that must be complete first",
        "verify": "its own gate, run after the repository's",
        "paths": "the only paths it may change: globs relative to the repository. `*` also matches `/`; a directory "
        "includes everything in it",
        "outputs": "files or directories it must produce, relative to the hive's directory; no two tasks may name the "
        "same one",
        "output": "the same, for one file",
        "agent": "a name for whoever does it: its mail address, the author of the commit that lands, and a row in "
        "`hive costs`. An agent has one session at a time. It selects no runner",
        "strengths": "instead of `agent`: what its agent should be good at; a free one that is gets it, or a new one",
        "idempotent": "`true`: may run again when it is unknown whether it ran",
    },
    "Budget": {"tokens": "tokens sent and received", "money": "dollars"},
    "Mail": {"types": "types of messages of your own"},
    "Price": {
        "input": "dollars per million tokens sent, for every model whose name begins with NAME, where a program "
        "reports tokens but no money. The known prices are the makers' list prices, as of the date in the file that "
        "`hive init` writes",
        "output": "dollars per million tokens received",
        "cache_read": "of the tokens sent, those read from the provider's cache",
        "cache_write": "of the tokens sent, those written to it",
    },
    "Runner": {
        "like": "the known program this is, if NAME is another name",
        "command": "the program that takes prompts, instead of the known one. `{prompt}` stands for the prompt, which "
        "otherwise comes last; `{session}` stands for the id of a new session",
        "acp": "the command of a program that speaks the Agent Client Protocol: `x --acp`. Nothing else is needed: "
        "prompt, session, permissions and mail go over the protocol",
        "via": "`acp` drives a known program over that protocol: claude, codex, gemini, goose, pi, opencode, qwen or "
        "copilot",
        "prompt": "how the prompt is passed: `file` (its path), `stdin`, `argument` (its text, at most 128 KiB)",
        "resume": "the command that continues session `{session}`",
        "args": "more command-line arguments: `--model opus`",
        "environment": "variables it is given. They are stored in the ledger, so put no keys here",
        "inherit": "names of variables it is given from your environment, such as keys. Only the names are stored",
        "sign_in": 'files of your home that are copied into the worker\'s home: `["~/.codex/auth.json"]`',
        "ignore": 'files it leaves in the repository, as .gitignore patterns; they never land: `[".mine/"]`',
        "output": "which reader understands its output: `claude`, `codex`, `gemini`, `goose`, `pi`, `opencode`, `qwen`,"
        " `copilot`, `aider`, `mini`",
        "signs": "for any other program: patterns of `session`, `done`, `rate-limited`, `quota`, `auth`, "
        "`context-limit`, `server-error`, `refused` in a line of its output",
        "mcp": 'MCP servers it is given: `{docs = ["docs-server", "--stdio"]}`',
        "price": "what a million tokens cost, whatever the model, if the program does not report money: "
        "`{input = 3, output = 15}`",
    },
    "MailType": {
        "like": "the type that the hive handles it as",
        "routes": 'who may send it to whom: `["worker -> person"]`, of `worker`, `queue`, `supervisor`, `dashboard`, '
        "`person`, `coordinator`",
        "payload": 'its fields and their kinds: `{severity = "integer", note = "text?"}`; `?` means that it may be '
        "missing",
        "reply": "whether a reply is expected",
        "urgent": "whether it interrupts its receiver's turn",
        "broadcast": "whether it may be sent to `all`",
    },
}


def make_plan_schema() -> Schema:
    """Make the schema of a plan."""
    schema = _make_schema(Plan, "A Hivekeeper plan")
    parts = schema["definitions"]
    _describe(schema, MEANINGS["Plan"])
    for name in ("Repo", "Defaults", "Budget"):
        _describe(parts[name], MEANINGS[name])
    _describe(parts["Task"], {**MEANINGS["Defaults"], **MEANINGS["Task"]})
    schema["properties"]["repos"]["propertyNames"] = {"pattern": NAME_PATTERN}
    parts["Repo"]["oneOf"] = _one_of("path", "url")
    parts["Task"] |= {
        "oneOf": _one_of("command", "prompt"),
        "allOf": [{"not": {"required": list(pair)}} for pair in (("agent", "strengths"), ("output", "outputs"))],
        "dependencies": {"verify": ["repo"], "paths": ["repo"], "command": {"properties": {"runner": False}}},
    }
    return schema


def make_settings_schema() -> Schema:
    """Make the schema of hive.toml."""
    schema = _make_schema(File, "The settings of a hive: hive.toml")
    parts = schema["definitions"]
    for name in ("Price", "Runner", "Mail", "MailType"):
        _describe(parts[name], MEANINGS[name])
    for table, purpose in DECLARED.items():
        part = parts[TABLES[table].__name__.strip("_")]
        part |= {"description": purpose} if purpose else {}
        declared = [(each, how) for each, how in list_settings() if how.table == table]
        _describe(part, {key_of(each): how.sentence for each, how in declared})
        for each, how in declared:
            value = write_value(each, how)
            written = value.strip('"')
            part["properties"][key_of(each)]["default"] = written if value != written else each.default
    return schema


def make_answer_schema(repos: Sequence[str], most: int) -> Schema:
    """Make the schema of a plan as a runner answers it: what it may decide, about these repositories alone."""
    schema = make_plan_schema()
    parts = schema["definitions"]
    task, repo = (_pick(parts[name], _ANSWERED[name]) for name in ("Task", "Repo"))
    task["oneOf"] = parts["Task"]["oneOf"]
    answer = _pick(schema, _ANSWERED["Plan"])
    answer["properties"]["tasks"] = {"type": "array", "items": task, "minItems": 1, "maxItems": most}
    if repos:
        task["properties"]["repo"] = {"enum": list(repos)}
        parts = dict.fromkeys(repos, repo)
        answer["properties"]["repos"] = {"type": "object", "properties": parts, "additionalProperties": False}
    return answer


def _pick(part: Schema, keys: Sequence[str]) -> Schema:
    """Take some keys of an object, without what describes them."""
    picked = {
        key: {name: said for name, said in part["properties"][key].items() if name not in ("description", "default")}
        for key in keys
    }
    needed = [key for key in part.get("required", ()) if key in keys]
    return {"type": "object", "properties": picked, "required": needed, "additionalProperties": False}


def _make_schema(model: type[BaseModel], title: str) -> Schema:
    found = model.model_json_schema(ref_template="#/definitions/{model}")
    parts = {name.strip("_"): _tidy(part) for name, part in found.pop("$defs").items()}
    return {"$schema": _DIALECT, "title": title, **_tidy(found), "definitions": parts}


def _tidy(found: Any) -> Any:  # noqa: ANN401 - any part of a schema
    """Leave out what pydantic adds for itself: titles, its own names of models, and null, which no file may say."""
    if isinstance(found, list):
        return [_tidy(each) for each in found]
    if not isinstance(found, dict):
        return found
    if isinstance(reference := found.get("$ref"), str):
        return {"$ref": reference.replace("/_", "/")}
    if (others := [each for each in found.get("anyOf", ()) if each != {"type": "null"}]) and len(others) == 1:
        return _tidy(others[0])
    tidied = {key: _tidy(value) for key, value in found.items() if key not in ("title", "description", "properties")}
    if isinstance(tidied.get("default", ""), dict | None | str | list):
        tidied.pop("default", None)
    if "properties" in found:
        tidied["properties"] = {key: _tidy(value) for key, value in found["properties"].items()}
    return tidied


def _describe(part: Schema, meanings: Mapping[str, str]) -> None:
    for key, meaning in meanings.items():
        known = part["properties"][key]
        # Beside a reference nothing else counts in draft 7.
        part["properties"][key] = {"description": meaning, **({"allOf": [known]} if "$ref" in known else known)}


def _one_of(*keys: str) -> list[Schema]:
    return [{"required": [key]} for key in keys]
