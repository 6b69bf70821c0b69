"""What the merge queue knows of git: entries, the trees that are verified, conflicts, what a repository ships.

Functions and values for the loops that land, fetch and publish. They read; what they find out is written by `commands`.
"""
