"""The size and the names of things: where good and ugly code in this field part ways (docs/adr has the numbers)."""

import ast
import re
from collections.abc import Iterator

from tests.architecture.sources import ROOT, Function, Source, count_lines, read_package, read_sources

LONGEST_MODULE = 500
LONGEST_FUNCTION = 60
LONGEST_CLASS = 250
LARGEST_SHARE_OF_CLI = 0.15
NAMES_THAT_SAY_NOTHING = {"util", "utils", "helper", "helpers", "common", "manager", "managers", "misc"}


def test_no_module_is_longer_than_500_lines() -> None:
    lengths = {source.name: len(source.lines) for source in read_package()}
    assert {name: length for name, length in lengths.items() if length > LONGEST_MODULE} == {}


def test_no_function_is_longer_than_60_lines() -> None:
    found = [
        f"{source.at(function)} {function.name}: {count_lines(function)}"
        for source in read_package()
        for function in _functions(source)
        if count_lines(function) > LONGEST_FUNCTION
    ]
    assert found == []


def test_no_class_is_longer_than_250_lines() -> None:
    found = [
        f"{source.at(cls)} {cls.name}: {count_lines(cls)}"
        for source in read_package()
        for cls in source.find(ast.ClassDef)
        if count_lines(cls) > LONGEST_CLASS
    ]
    assert found == []


def test_the_command_line_is_a_thin_edge() -> None:
    cli = sum(len(source.lines) for source in read_package() if source.layer == "cli")
    package = sum(len(source.lines) for source in read_package())
    assert cli / package <= LARGEST_SHARE_OF_CLI, f"cli has {cli} of {package} lines, {cli / package:.1%}"


def test_no_module_has_a_name_that_says_nothing() -> None:
    found = [
        source.name
        for source in read_package()
        if any(set(part.split("_")) & NAMES_THAT_SAY_NOTHING for part in source.name.removesuffix(".py").split("/"))
    ]
    assert found == []


def test_no_function_or_class_has_a_name_that_says_nothing() -> None:
    found = [
        f"{source.at(node)} {node.name}"
        for source in read_package()
        for node in (*_functions(source), *source.find(ast.ClassDef))
        # A function may be about something common; a class ending in Manager is about nothing.
        if node.name.strip("_").lower() in NAMES_THAT_SAY_NOTHING or _last_word(node) in NAMES_THAT_SAY_NOTHING
    ]
    assert found == []


def test_every_public_method_is_documented_here_or_where_it_comes_from() -> None:
    promised = {
        method.name
        for source in read_package()
        for cls in source.find(ast.ClassDef)
        if any(isinstance(base, ast.Name) and base.id == "Protocol" for base in cls.bases)
        for method in _methods(cls)
        if ast.get_docstring(method)
    }
    inherited = {
        cls.name: {method.name for method in _methods(cls) if ast.get_docstring(method)}
        for source in read_package()
        for cls in source.find(ast.ClassDef)
    }
    found = [
        f"{source.at(method)} {cls.name}.{method.name}"
        for source in read_package()
        for cls in source.find(ast.ClassDef)
        if not cls.name.startswith("_")
        for method in _methods(cls)
        if not method.name.startswith("_") and not ast.get_docstring(method) and method.name not in promised
        if not any(method.name in inherited.get(base.id, ()) for base in cls.bases if isinstance(base, ast.Name))
    ]
    assert found == []


def test_a_test_that_sleeps_says_why_it_needs_real_time() -> None:
    found = [
        f"tests/{source.at(call)}"
        for source in read_sources(ROOT / "tests")
        for call in source.find(ast.Call)
        if _called(call) == "sleep" and "# real time: " not in source.lines[call.lineno - 1]
    ]
    assert found == []


def test_every_test_is_named_by_a_sentence() -> None:
    found = [
        f"tests/{source.at(function)} {function.name}"
        for source in read_sources(ROOT / "tests")
        for function in _functions(source)
        if function.name.startswith("test_") and len(function.name.split("_")) < 4
    ]
    assert found == []


def test_every_exception_to_a_rule_gives_its_reason() -> None:
    """`# noqa: RULE - reason`: a bare exception tells the next reader nothing."""
    bare = re.compile(r"# noqa(?!: [A-Z0-9, ]+ - \S)")
    found = [
        f"{source.name}:{number}"
        for source in read_package()
        for number, line in enumerate(source.lines, 1)
        if bare.search(line)
    ]
    assert found == []


def _functions(source: Source) -> Iterator[Function]:
    yield from source.find(ast.FunctionDef)
    yield from source.find(ast.AsyncFunctionDef)


def _methods(cls: ast.ClassDef) -> Iterator[Function]:
    return (node for node in cls.body if isinstance(node, Function))


def _last_word(node: Function | ast.ClassDef) -> str:
    return re.findall(r"[A-Z]?[a-z0-9]*", node.name.strip("_"))[-2].lower() if isinstance(node, ast.ClassDef) else ""


def _called(call: ast.Call) -> str:
    match call.func:
        case ast.Name(name) | ast.Attribute(_, name):
            return name
        case _:
            return ""
