"""`python -m hivekeeper` is `hive`; so is this file by its path, whatever else of its package's name is installed."""

import importlib.util
import sys
from pathlib import Path

if not __package__:
    directory = Path(__file__).resolve().parent
    sys.path.append(str(directory.parent))  # where what it depends on may lie
    spec = importlib.util.spec_from_file_location(
        directory.name, directory / "__init__.py", submodule_search_locations=[str(directory)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = sys.modules[directory.name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    sys.argv[0] = "hive"

from hivekeeper.cli import main

main()
