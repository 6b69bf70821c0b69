"""The keeper: the composition root. It takes the lease, builds every part, and runs one thread a loop.

It is not where anything is decided about tasks; that is the loops' and the domain's.
"""
