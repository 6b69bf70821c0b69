"""The import contracts of pyproject.toml hold: layers, pure domain, one door to each thing of the world."""

import subprocess
import sys
from pathlib import Path

from tests.architecture.sources import ROOT


def test_every_import_contract_is_kept() -> None:
    linter = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run([str(linter), "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
