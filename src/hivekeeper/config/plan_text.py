"""A plan as the text of its file. What an editor would not show as it is, is escaped."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

import yaml

_WIDTH = 110


class _Dumper(yaml.SafeDumper):
    """Writes text of several lines as such."""

    def ignore_aliases(self, _data: object) -> bool:
        """Write a value again wherever it stands."""
        return True

    def write_double_quoted(self, text: str, split: bool = True) -> None:  # noqa: FBT001, FBT002 - as it is called
        """Escape whatever is not ASCII: only text with something invisible is written in double quotes."""
        self.allow_unicode = False
        super().write_double_quoted(text, split)
        self.allow_unicode = True


def _write_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    style = "|" if "\n" in text else None
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style if _is_shown(text) else '"')


_Dumper.add_representer(str, _write_text)


def write_plan(plan: Mapping[str, Any], about: Sequence[str]) -> str:
    """Write a plan, below comments that say what it is about."""
    shown = ("".join(letter if letter.isprintable() else " " for letter in words) for words in about)
    lines = [line for words in shown for line in textwrap.wrap(words, _WIDTH - 2)]
    text = yaml.dump(dict(plan), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=_WIDTH)
    return "".join(f"# {line}\n" for line in lines) + text


def _is_shown(text: str) -> bool:
    return text.replace("\n", "").isprintable()
