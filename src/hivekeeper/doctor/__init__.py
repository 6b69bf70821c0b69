"""The doctor: checks every part of a hive, says what is wrong with it, and repairs what is safe to repair.

It reads the ledger through a connection that cannot write, so that it works on a damaged one too. It decides nothing
that a keeper decides: what the next keeper settles by itself is left to it.
"""
