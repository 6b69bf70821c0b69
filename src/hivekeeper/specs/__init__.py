"""Specifies each run exactly: its command, directory, environment, mounts and limits.

Functions from facts to a `RunSpec`. Nothing here reads the ledger or git, or decides what runs; `commands.runs` records
the intent.
"""
