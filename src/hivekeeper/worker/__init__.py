"""What an agent does inside its sandbox, by commands or by tools: mail, progress, asking for help, being done.

It sees its own mailbox and its own clone, and never the ledger. `bin` is on a worker's PATH.
"""
