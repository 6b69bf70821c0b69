"""The ledger and its tables: the one place where state is kept.

It is not where anything is decided: it applies what `domain.project` says and refuses what the state machines forbid.
"""
