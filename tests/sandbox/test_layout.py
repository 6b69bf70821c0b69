"""What may be done where: depth, order and links decide, the same for every isolation level."""

from pathlib import Path

import pytest

from hivekeeper.sandbox.layout import Layout, Mode, lay_out, trace
from hivekeeper.sandbox.toolchain import find_secret, find_toolchain


def test_the_deepest_named_place_decides(tmp_path: Path) -> None:
    (tmp_path / "a" / "b" / "c" / "d").mkdir(parents=True)
    layout = _lay(tmp_path, hide=["a", "a/b/c/d"], read=["a/b/c"], write=["a/b"])
    modes = [layout.mode_at(str(tmp_path / path)) for path in ("", "a", "a/x", "a/b", "a/b/c", "a/b/c/x", "a/b/c/d/x")]
    assert modes == [Mode.READ, Mode.HIDE, Mode.HIDE, Mode.WRITE, Mode.READ, Mode.READ, Mode.HIDE]


def test_at_one_path_writing_beats_reading_beats_hiding(tmp_path: Path) -> None:
    for name in ("both", "all"):
        (tmp_path / name).mkdir()
    layout = _lay(tmp_path, hide=["both", "all"], read=["both", "all"], write=["all"])
    assert layout.mode_at(str(tmp_path / "both")) is Mode.READ
    assert layout.mode_at(str(tmp_path / "all")) is Mode.WRITE


def test_a_name_that_begins_like_another_is_not_below_it(tmp_path: Path) -> None:
    (tmp_path / "own").mkdir()
    assert _lay(tmp_path, hide=["own"]).mode_at(str(tmp_path / "own-not")) is Mode.READ


def test_what_is_not_there_is_left_out_except_a_mount_to_write_in(tmp_path: Path) -> None:
    layout = _lay(tmp_path, hide=["a"], read=["b"], write=["c"])
    assert layout.places == {str(tmp_path / "c"): Mode.WRITE}


def test_a_mount_is_named_by_where_its_links_lead(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to("real")
    layout = _lay(tmp_path, write=["link"])
    assert layout.places == {str(tmp_path / "real"): Mode.WRITE}
    assert layout.links == {str(tmp_path / "link"): "real"}


@pytest.mark.parametrize("mode", ["read", "write"])
def test_a_link_that_a_worker_made_in_its_sandbox_opens_nothing(tmp_path: Path, mode: str) -> None:
    for name in ("own", "home"):
        (tmp_path / name).mkdir()
    (tmp_path / "own" / "tmp").symlink_to(tmp_path / "home")
    more = {"read": ["own/tmp"]} if mode == "read" else {}
    write = ["own", "own/tmp"] if mode == "write" else ["own"]
    layout = _lay(tmp_path, hide=["home"], write=write, **more)
    assert layout.mode_at(str(tmp_path / "home")) is Mode.HIDE


def test_a_link_beside_a_mount_is_not_taken_for_one_inside(tmp_path: Path) -> None:
    for name in ("own", "real"):
        (tmp_path / name).mkdir()
    (tmp_path / "own-link").symlink_to("real")
    assert _lay(tmp_path, write=["own", "own-link"]).mode_at(str(tmp_path / "real")) is Mode.WRITE


def test_links_are_followed_as_the_kernel_follows_them(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    (tmp_path / "up").symlink_to("a/b/..")
    (tmp_path / "chain").symlink_to(tmp_path / "up" / "b")
    (tmp_path / "loop").symlink_to("loop")
    for name in ("a/b", "up/b", "chain", "chain/missing", "."):
        assert trace(str(tmp_path / name)).real == str((tmp_path / name).resolve())
    assert trace(str(tmp_path / "loop")).real == str(tmp_path / "loop")
    assert trace("/").real == "/"


def test_the_whole_prefix_of_a_program_comes_back_without_its_credentials(tmp_path: Path) -> None:
    home = _make(tmp_path, "home/.cargo/bin/cargo", "home/.cargo/credentials.toml", "home/.rustup/toolchains/x")
    found = _find(home, home / ".cargo" / "bin")
    assert found[str(home / ".cargo")] is Mode.READ
    assert found[str(home / ".cargo" / "credentials.toml")] is Mode.HIDE
    assert found[str(home / ".rustup")] is Mode.READ


@pytest.mark.parametrize("directory", ["bin", ".local/bin"])
def test_of_a_bin_shared_by_many_only_it_and_what_its_links_lead_to_come_back(tmp_path: Path, directory: str) -> None:
    home = _make(tmp_path, f"home/{directory}/own", "home/.local/share/pipx/venvs/x/bin/x", "home/agent/versions/2")
    _make(tmp_path, "home/lib/node_modules/@one/two/cli.js", "home/.local/share/keyrings/key")
    (home / directory / "x").symlink_to(home / ".local/share/pipx/venvs/x/bin/x")
    (home / directory / "agent").symlink_to(home / "agent/versions/2")
    (home / directory / "node").symlink_to(home / "lib/node_modules/@one/two/cli.js")
    found = _find(home, home / directory)
    assert {str(home), str(home / ".local"), str(home / "agent"), str(home / "agent/versions")}.isdisjoint(found)
    for path in (directory, ".local/share/pipx/venvs/x", "agent/versions/2", "lib/node_modules"):
        assert found[str(home / path)] is Mode.READ


def test_a_search_path_that_holds_the_home_itself_uncovers_nothing(tmp_path: Path) -> None:
    home = _make(tmp_path, "home/secret")
    assert not any(path.startswith(str(home)) for path in _find(home, home, tmp_path, Path("/")))


def test_a_program_that_updates_itself_is_found_again(tmp_path: Path) -> None:
    home = _make(tmp_path, "home/bin/x", "home/agent/1", "home/agent/2")
    (home / "bin" / "agent").symlink_to(home / "agent" / "1")
    assert str(home / "agent/1") in _find(home, home / "bin")
    (home / "bin" / "agent").unlink()
    (home / "bin" / "agent").symlink_to(home / "agent" / "2")
    assert str(home / "agent/2") in _find(home, home / "bin")


def test_a_program_inside_a_writable_mount_stays_writable(tmp_path: Path) -> None:
    home = _make(tmp_path, "home/hive/own/.venv/bin/python")
    tools = find_toolchain(str(home / "hive/own/.venv/bin"), str(home))
    layout = lay_out([str(home)], [], [str(home / "hive/own")], tools)
    assert layout.mode_at(str(home / "hive/own/.venv/bin")) is Mode.WRITE
    assert lay_out([str(home)], [], [], tools).mode_at(str(home / "hive/own/.venv/bin")) is Mode.READ


def test_what_hive_toml_names_comes_back_with_its_installation(tmp_path: Path) -> None:
    home = _make(tmp_path, "home/py/server.py", "home/py/.env", "home/node/package.json", "home/node/dist/index.js")
    _make(tmp_path, "home/node/node_modules/x/index.js", "home/app/.venv/bin/serve", "home/own.py", "home/data/x")
    _make(
        tmp_path,
        "home/keeps/.hive/ledger",
        "home/keeps/server.py",
        "home/lib/node_modules/s/cli.js",
        "home/.config/s.py",
    )
    (home / "wrapped").mkdir()
    (home / "wrapped" / "run").write_text(f"#!{home}/app/.venv/bin/serve\n")
    alone = ("own.py", "keeps/server.py", "data", ".config/s.py")
    found = _find_named(home, "py/server.py", "node/dist/index.js", "wrapped/run", *alone)
    shown = {str(Path(path).relative_to(home)) for path in found if path.startswith(str(home))}
    assert shown == {
        *("py", "py/.env", "py/server.py", "node", "node/dist/index.js", "wrapped", "wrapped/run"),
        *("app/.venv", "app/.venv/bin", "app/.venv/bin/serve", *alone),
    }
    assert found[str(home / "py" / ".env")] is Mode.HIDE
    assert str(home / "lib/node_modules") in _find_named(home, "lib/node_modules/s/cli.js")


@pytest.mark.parametrize("name", [".", ".ssh", ".ssh/id", ".aws/config", ".."])
def test_a_name_in_hive_toml_uncovers_neither_the_home_nor_its_secrets(tmp_path: Path, name: str) -> None:
    home = _make(tmp_path, "home/.ssh/id", "home/.aws/config")
    assert not any(path.startswith(str(home)) for path in _find_named(home, name))
    assert find_secret(str(home / name), str(home)) is not None


def _find_named(home: Path, *names: str) -> dict[str, Mode]:
    found = find_toolchain("", str(home), tuple(str(home / name) for name in names))
    return {traced.real: mode for traced, mode in found}


def _lay(root: Path, hide: tuple[str, ...] | list[str] = (), **mounts: list[str]) -> Layout:
    named = {mode: [str(root / name) for name in names] for mode, names in mounts.items()}
    return lay_out([str(root / name) for name in hide], named.get("read", []), named.get("write", []), ())


def _make(root: Path, *files: str) -> Path:
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return root / "home"


def _find(home: Path, *directories: Path) -> dict[str, Mode]:
    found = find_toolchain(":".join(map(str, directories)), str(home))
    return {traced.real: mode for traced, mode in found}
