"""What follows from the declared settings for a person to read: the file that `hive init` writes, and the reference."""

from dataclasses import Field
from typing import Any

from hivekeeper.runners.prices import PRICES_AS_OF
from hivekeeper.settings import TABLES, Said, key_of, list_settings

COLUMN = 28
_BEFORE_PATTERNS = f"""\
# What models cost, in dollars a million tokens, where a program tells tokens and no money. Known without a line here:
# the makers' list prices of {PRICES_AS_OF}. A name stands for every model that begins with it.
# [prices]
# claude-opus = {{input = 5, output = 25, cache_read = 0.5, cache_write = 6.25}}

# Who takes prompts. claude, codex, gemini, goose, pi, opencode, qwen, copilot, aider and mini are known: hive runner ls
# shows which are installed. A table of a known one adds to what is known of it; any other is a command of yours.
# [runners.claude]
# args = "--model opus"
# [runners.mine]
# command = "my-agent --print"
# prompt = "stdin"
"""


def make_template() -> str:
    """Write hive.toml with every default and a comment for each."""
    parts = ["# How this hive works. Every value here is the default: a line that is removed changes nothing.\n"]
    for table, purpose in TABLES.items():
        parts += [_BEFORE_PATTERNS] if table == "patterns" else []
        lines = [f"# {purpose}"] if purpose else []
        lines.append(f"[{table}]")
        lines += [_line(each, said) for each, said in list_settings() if said.table == table]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(each: Field[Any], said: Said) -> str:
    return f"{f'{key_of(each)} = {write_value(each, said)}':<{COLUMN}}# {said.sentence}"


def write_value(each: Field[Any], said: Said) -> str:
    """Write a setting's default as hive.toml has it."""
    match each.default:
        case None:
            return f'"{said.word}"'
        case bool():
            return str(each.default).lower()
        case float() as seconds:
            size, unit = next((size, unit) for size, unit in ((3600, "h"), (60, "m"), (1, "s")) if seconds % size == 0)
            return f'"{seconds / size:g}{unit}"'
        case int() as number if each.name.endswith("_bytes"):
            size, unit = next((size, unit) for size, unit in ((1 << 30, "GiB"), (1 << 20, "MiB")) if number % size == 0)
            return f'"{number // size}{unit}"'
        case tuple():
            return "[]"
        case other:
            return str(other)


def make_reference() -> str:
    """Write the rows of the reference page: the settings that have a default."""
    return "\n".join(
        f"| `[{said.table}]` `{key_of(each)}` | {write_value(each, said).strip(chr(34))} | {_reword(said)} |"
        for each, said in list_settings()
    )


def _reword(said: Said) -> str:
    return said.sentence.replace('"', "`")


DEFAULT_TOML = make_template()
