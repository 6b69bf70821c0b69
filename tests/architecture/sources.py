"""The package's own source, read and parsed once, for the tests that look at its shape."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "hivekeeper"

Node = TypeVar("Node", bound=ast.AST)
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True, slots=True)
class Source:
    """One Python file, named by its path below the directory it was found in: `store/ledger.py`."""

    name: str
    text: str
    tree: ast.Module

    @property
    def lines(self) -> list[str]:
        """The text by lines; a node's `lineno` counts them from one."""
        return self.text.splitlines()

    @property
    def layer(self) -> str:
        """The part of the package it belongs to: `store`."""
        return self.name.partition("/")[0].removesuffix(".py")

    def at(self, node: ast.AST) -> str:
        """Say where a node is, as editors understand it."""
        return f"{self.name}:{getattr(node, 'lineno', 0)}"

    def find(self, kind: type[Node]) -> Iterator[Node]:
        """Find every node of a kind, however deep."""
        return (node for node in ast.walk(self.tree) if isinstance(node, kind))


@cache
def read_sources(directory: Path) -> tuple[Source, ...]:
    """Read every Python file below a directory."""
    paths = sorted(directory.rglob("*.py"))
    return tuple(_read(path, path.relative_to(directory).as_posix()) for path in paths)


@cache
def read_package() -> tuple[Source, ...]:
    """Read the package."""
    return read_sources(PACKAGE)


def _read(path: Path, name: str) -> Source:
    text = path.read_text("utf-8")
    return Source(name, text, ast.parse(text, filename=str(path)))


def count_lines(node: ast.stmt) -> int:
    """Tell how long a statement is, from its first line to its last, without decorators."""
    return (node.end_lineno or node.lineno) - node.lineno + 1


def dotted(node: ast.expr) -> str:
    """Write a chain of names as it stands in the source, `self._clock.now`; what is no name is left out."""
    match node:
        case ast.Name(name):
            return name
        case ast.Attribute(value, name):
            return f"{dotted(value)}.{name}"
        case _:
            return ""
