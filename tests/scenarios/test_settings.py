"""The file of settings says how workers are isolated, so no worker can change what holds."""

from pathlib import Path

import pytest

from hivekeeper.config.settings import load_settings
from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.domain.lease import KeeperState
from hivekeeper.domain.plan import TaskSpec
from hivekeeper.domain.states import ConvoyState
from hivekeeper.errors import InputError
from hivekeeper.hive import open_hive
from hivekeeper.keeper.keeper import Keeper
from hivekeeper.sandbox.isolation import Level
from hivekeeper.views.status import show_status
from tests.needs import need
from tests.scenarios.conftest import Scene

LOOSE = '[sandbox]\nlevel = "limits"\n'


def reload(stage: Scene, text: str) -> bool:
    keeper = stage.keeper or stage.take()
    (stage.root / "hive.toml").write_text(text)
    assert not keeper.reload_settings()  # it may still be written to
    stage.clock.let_pass(1)
    return keeper.reload_settings()


@pytest.mark.parametrize(
    ("text", "key"),
    [(LOOSE, "level"), ("[sandbox]\nwrite = ['/']\n", "write"), ("[sandbox]\nread = ['/root']\n", "read")],
)
def test_a_running_keeper_never_isolates_workers_less_than_when_it_started(stage: Scene, text: str, key: str) -> None:
    keeper = stage.take()
    before = keeper.hive.settings
    assert not reload(stage, text)
    assert f"[sandbox] {key}" in keeper.problems["hive.toml"]
    assert "hive down && hive up" in keeper.problems["hive.toml"]
    assert keeper.hive.settings is before
    stronger = f"[sandbox]\nwrite = ['{stage.root.parent}']\nrequire = 'landlock'\n"
    assert reload(stage, stronger) == (keeper.find_isolation().level is not Level.LIMITS)


def test_a_missing_file_is_written_before_any_worker_could_write_it(stage: Scene) -> None:
    (stage.root / "hive.toml").unlink()
    stage.hive = open_hive(stage.root, stage.clock)
    keeper = stage.take()
    need(keeper.find_isolation().level is Level.NAMESPACES, "needs bubblewrap")
    stage.submit(TaskSpec("A", f"rm -f hive.toml; printf '{LOOSE}' > hive.toml", attempts=1))
    assert stage.finish() is ConvoyState.FAILED
    assert (stage.root / "hive.toml").read_text() == DEFAULT_TOML


def test_a_link_is_refused_with_what_to_type(stage: Scene, tmp_path: Path) -> None:
    file, real = stage.root / "hive.toml", tmp_path / "dotfiles.toml"
    file.rename(real)
    file.symlink_to(real)
    hive = open_hive(stage.root)
    try:
        with pytest.raises(InputError, match=r"hive.toml is a link.*\n.*cp --remove-destination"):
            Keeper(hive)
    finally:
        hive.close()
    assert load_settings(stage.root) == hive.settings, "reads go on"


def test_what_fails_in_the_keeper_is_in_the_status_until_it_works_again(
    stage: Scene,
) -> None:
    keeper = stage.take()
    assert not reload(stage, LOOSE)
    keeper._note("merger", "git is away")  # noqa: SLF001 - as its thread does when a pass fails
    keeper.step()
    needs = list_needs(stage)
    assert "The merger of the keeper fails and is retried: git is away" in needs
    assert any(need.startswith("The changed hive.toml is not in use: [sandbox] level") for need in needs)
    keeper._note("merger", None)  # noqa: SLF001 - as above
    reload(stage, f"[sandbox]\nwrite = ['{stage.root.parent}']\n")
    keeper.step()
    assert list_needs(stage) == []


def list_needs(stage: Scene) -> list[str]:
    with stage.hive.ledger.read() as connection:
        shown = show_status(connection, KeeperState.ACTIVE, now=stage.clock.now())
    return [need["what"] for need in shown["needs_me"]]


def test_a_number_of_workers_that_is_not_used_is_said(stage: Scene) -> None:
    keeper = stage.take(workers=3)
    assert reload(stage, "[hive]\nworkers = 9\n")
    assert keeper.problems["hive.toml"] == "[hive] workers = 9 is not used: the keeper was started with --workers 3."
