"""The doctor: looks at everything a hive consists of, says what is wrong with it, and repairs what is provably safe.

It reads the ledger through a connection that cannot write, so that it works on a damaged one too. It decides nothing
that a keeper decides: what the next keeper settles by itself is left to it.
"""
