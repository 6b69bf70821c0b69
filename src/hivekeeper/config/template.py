"""The hive.toml that `hive init` writes, made from the declared settings."""

from dataclasses import Field
from typing import Any

from hivekeeper.runners.prices import PRICES_AS_OF
from hivekeeper.settings import TABLES, Setting, key_of, list_settings

COLUMN = 28
_BEFORE_PATTERNS = f"""\
# Dollars per million tokens, for programs that report tokens but no money. Known without a line here: the vendors'
# list prices of {PRICES_AS_OF}. A name stands for every model whose name begins with it.
# [prices]
# claude-opus = {{input = 5, output = 25, cache_read = 0.5, cache_write = 6.25}}

# The programs that take prompts. claude, codex, gemini, goose, pi, opencode, qwen, copilot, aider and mini are known:
# hive runner ls shows which are installed. A table for a known one adds to its settings; any other is your own command.
# [runners.claude]
# args = "--model opus"
# [runners.mine]
# command = "my-agent --print"
# prompt = "stdin"
"""


def make_template() -> str:
    """Write hive.toml with every default and a comment for each."""
    parts = ["# The settings of this hive. Every value here is the default: removing a line changes nothing.\n"]
    for table, purpose in TABLES.items():
        parts += [_BEFORE_PATTERNS] if table == "patterns" else []
        lines = [f"# {purpose}"] if purpose else []
        lines.append(f"[{table}]")
        lines += [_line(each, how) for each, how in list_settings() if how.table == table]
        parts.append("\n".join(lines) + "\n")
    return "\n".join(parts)


def _line(each: Field[Any], how: Setting) -> str:
    return f"{f'{key_of(each)} = {write_value(each, how)}':<{COLUMN}}# {how.sentence}"


def write_value(each: Field[Any], how: Setting) -> str:
    """Write a setting's default as hive.toml has it."""
    match each.default:
        case None:
            return f'"{how.word}"'
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


DEFAULT_TOML = make_template()
