"""Mailboxes: a worker's `inbox` and `outbox`, directories that it may change at any moment.

`boxes` is the hive's side: it opens one name after the other without following links, and believes nothing it reads.
`worker` is the worker's side, for the commands and servers that run in its sandbox. Neither knows the ledger.
"""
