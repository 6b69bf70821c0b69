"""What is said of a sandbox before anything runs in it is what a program inside then finds."""

from dataclasses import replace
from pathlib import Path

from hivekeeper.sandbox.isolation import Isolation, Level
from tests.sandbox.prison import Prison


def _install(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\necho it runs\n")
    path.chmod(0o755)
    return str(path)


def _can_run(prison: Prison, isolation: Isolation, path: str) -> bool:
    return replace(prison, isolation=isolation).run(path).stdout == "it runs\n"


def test_a_program_is_seen_where_it_can_be_started_and_nowhere_else(prison: Prison) -> None:
    bare = prison.isolation
    hidden, beside = _install(prison.home / "tools" / "agent"), _install(prison.home / "agent")
    link = prison.home / "link"
    link.symlink_to(hidden)
    for isolation, seen in (
        (bare, ()),
        (replace(bare, read=(str(prison.home / "tools"),)), (hidden, str(link))),
        (replace(bare, named=(hidden,)), (hidden, str(link))),
        (replace(bare, named=(beside,)), (beside,)),
        (replace(bare, write=(str(prison.home),)), (hidden, beside, str(link))),
    ):
        for path in (hidden, beside):
            assert isolation.sees(path, {}) is (path in seen)
            assert _can_run(prison, isolation, path) is (path in seen)
        assert isolation.sees(str(link), {}) is (str(link) in seen)
    assert bare.sees("/bin/sh", {})


def test_the_search_path_of_a_run_is_seen(prison: Prison) -> None:
    program = _install(prison.home / "programs" / "bin" / "agent")
    assert not prison.isolation.sees(program, {})
    assert prison.isolation.sees(program, {"PATH": f"/usr/bin:{prison.home}/programs/bin"})


def test_without_isolation_everything_is_seen(prison: Prison) -> None:
    assert Isolation(Level.LIMITS, "", str(prison.home)).sees(str(prison.home / "secret"), {})
