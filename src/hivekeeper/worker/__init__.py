"""What runs inside a worker's sandbox: mail and reports as commands and tools, and the driver of ACP programs.

It sees its own mailbox and its own clone, and never the ledger. `bin` is on a worker's PATH.
"""
