"""`python -m hivekeeper` is `hive`."""

from hivekeeper.cli import main

main()
