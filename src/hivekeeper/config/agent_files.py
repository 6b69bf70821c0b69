"""The files of an agent that a person may edit: identity.yaml and expertise.yaml, read and written.

Written again, a file keeps everything that has not changed as it is, also comments: only the values of keys that say
something else now are replaced.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated

import yaml
from pydantic import Field

from hivekeeper.config.located import LOADER, Checked, Filled, Listed, Problems, check, parse_yaml, rule
from hivekeeper.domain.agents import MAX_LESSON, MAX_LESSONS, MAX_ROLE, MAX_STRENGTHS, TOPICS, AgentFile
from hivekeeper.domain.names import show

IDENTITY, EXPERTISE = "identity.yaml", "expertise.yaml"
MAX_CHARACTERS = 256 << 10
_HEADS = {
    IDENTITY: "# Who this agent is. `role` and `strengths` are yours to edit; the rest follows from what it did.\n",
    EXPERTISE: "# What this agent has learnt. Edit it as you like: what you remove is not told to it any more.\n",
}
_Lesson = Annotated[Filled, rule(lambda text: len(text) <= MAX_LESSON, f"must have at most {MAX_LESSON} characters")]
_Strength = Annotated[Filled, rule(lambda text: len(text) <= MAX_ROLE and text.isprintable(), "must be a line of text")]
_Lessons = Annotated[Listed[_Lesson], Field(max_length=MAX_LESSONS)]


class _Identity(Checked):
    name: Filled
    role: Annotated[str, rule(lambda text: len(text) <= MAX_ROLE, f"must have at most {MAX_ROLE} characters")] = ""
    created: str = ""
    sessions_completed: int = 0
    expertise_path: str = ""
    strengths: Annotated[Listed[_Strength], Field(max_length=MAX_STRENGTHS)] = ()


class _Expertise(Checked):
    patterns: _Lessons = ()
    anti_patterns: Annotated[_Lessons, Field(alias="anti-patterns")] = ()
    decisions: _Lessons = ()


def read_agent_file(names: Sequence[str], file: str, path: str, text: str) -> AgentFile:
    """Read one of an agent's files; InputError names everything wrong with it, with lines and columns.

    The agent is called by the first name, and may have had the others before.
    """
    problems = Problems(path, "the last good version stays in use")
    if len(text) > MAX_CHARACTERS:
        problems.stop(f"larger than {MAX_CHARACTERS >> 10} KiB")
    located = parse_yaml(text, problems, with_columns=True)
    model = _Identity if file == IDENTITY else _Expertise
    found = check(model, located, problems, lambda _: (f"the {file.removesuffix('.yaml')}", model))
    if isinstance(found, _Identity) and found.name not in names:
        told = f"'name' is {show(found.name)}, and this is the directory of {names[0]}"
        problems.add(f"{told}; to rename it: hive agent rename {names[0]} NEW", *located.place(("name",)))
    if found is None or problems.found:
        raise problems.error()
    if isinstance(found, _Identity):
        return AgentFile(found.role, tuple(dict.fromkeys(found.strengths)))
    assert isinstance(found, _Expertise)
    said = zip(TOPICS, (found.patterns, found.anti_patterns, found.decisions), strict=True)
    return AgentFile(lessons={topic: tuple(dict.fromkeys(each.strip() for each in texts)) for topic, texts in said})


def write_agent_file(file: str, values: Mapping[str, str | int | Sequence[str]], old: str = "") -> str:
    """Write an agent's file with these values, and everything else as it is in the old text, if that can be read."""
    try:
        root = yaml.compose(old, Loader=LOADER) if old.strip() else None
    except yaml.YAMLError:
        root = None
    if not isinstance(root, yaml.MappingNode):
        return _HEADS[file] + "".join(_write_key(key, value) for key, value in values.items())
    text, known = old if old.endswith("\n") else f"{old}\n", {str(key.value): (key, node) for key, node in root.value}
    for name, (key, node) in reversed(known.items()):  # from the end, so that marks stay true
        if name in values and _read_value(node) != values[name]:
            text = (
                text[: key.start_mark.index]
                + _write_key(name, values[name]).rstrip("\n")
                + text[_find_end(text, node) :]
            )
    return text + "".join(_write_key(name, value) for name, value in values.items() if name not in known)


def _find_end(text: str, node: yaml.Node) -> int:
    """Find where a value ends; a block's mark is where the next thing begins."""
    return len(text[: node.end_mark.index].rstrip())


def _read_value(node: yaml.Node) -> str | int | list[str]:
    if isinstance(node, yaml.SequenceNode):
        return [str(item.value) for item in node.value]
    return int(node.value) if node.tag.endswith(":int") else str(node.value)


def _write_key(name: str, value: str | int | Sequence[str]) -> str:
    shown = list(value) if not isinstance(value, str | int) else value
    return yaml.safe_dump({name: shown}, allow_unicode=True, sort_keys=False, width=100, default_flow_style=False)
