"""The only door to appending: one function a verb, each load, decide, append, inside the caller's transaction.

They are idempotent: what has already happened does not happen again, and the answer says whether anything did.
"""
