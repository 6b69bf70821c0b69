"""A hive.toml for so many agents says what suits them, and why."""

from pathlib import Path

import pytest

from hivekeeper.config.profiles import MEANINGS, VALUES, make_profile
from hivekeeper.config.settings import load_settings
from hivekeeper.config.template import DEFAULT_TOML
from hivekeeper.settings import Settings

SMALL = Settings(queue=False, convoys=False, mail=False)
TEAM = Settings(convoys=False)
CROWD = Settings(timeout_s=7200.0, silence_s=1800.0, processes=500, disk_bytes=10 << 30)
SWARM = Settings(timeout_s=7200.0, silence_s=900.0, processes=200, disk_bytes=5 << 30)


@pytest.mark.parametrize(
    ("agents", "band", "meant"),
    [
        (1, "1–3", SMALL),
        (2, "1–3", SMALL),
        (3, "3–10", TEAM),
        (9, "3–10", TEAM),
        (10, "10–20", CROWD),
        (19, "10–20", CROWD),
        (20, "20 and more", SWARM),
        (1000, "20 and more", SWARM),
    ],
)
def test_the_profile_of_a_band_loads_to_the_settings_meant(
    tmp_path: Path, agents: int, band: str, meant: Settings
) -> None:
    profile = make_profile(agents)
    (tmp_path / "hive.toml").write_text(profile.toml)
    found = load_settings(tmp_path)
    assert found.workers == agents
    for name in ("queue", "cleanup", "convoys", "mail", "limits", "heartbeat_s", "level", "runners"):
        assert getattr(found, name) == getattr(meant, name), name
    assert profile.toml.startswith(f"# A hive of {agents}, made for {band} agents: ")
    assert profile.sentence.startswith(f"hive.toml is for {band} agents: ")


@pytest.mark.parametrize("agents", MEANINGS)
def test_every_choice_of_a_profile_gives_its_reason(agents: int) -> None:
    lines = make_profile(agents).toml.splitlines()
    for pattern in ("queue", "cleanup", "convoys", "mail"):
        (line,) = [line for line in lines if line.startswith(f"{pattern} = ")]
        value, _, why = line.partition("# ")
        assert why.startswith("on: " if "true" in value else "off: ")


def test_a_profile_has_every_line_of_the_default_file() -> None:
    keys = [line.partition(" = ")[0] for line in DEFAULT_TOML.splitlines()[1:]]
    assert [line.partition(" = ")[0] for line in make_profile(7).toml.splitlines()[1:]] == keys


def test_a_profile_names_only_keys_that_there_are() -> None:
    keys = {line.partition(" = ")[0] for line in DEFAULT_TOML.splitlines()}
    assert [key for key in VALUES if key not in keys] == []
