"""What the merge queue reads from git: entries, verified trees, conflicts, and a repository's agent configuration.

Functions and values for the loops that land, fetch and publish. They only read; `commands` record the results.
"""
