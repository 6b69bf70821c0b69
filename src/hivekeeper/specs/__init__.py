"""What each run is exactly: its command, where it works, what it may touch and for how long.

Functions from facts to a `RunSpec`. Nothing here reads the ledger, asks git or decides what runs; `commands.runs`
writes the intent.
"""
