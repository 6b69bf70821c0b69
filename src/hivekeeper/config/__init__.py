"""What comes from outside becomes checked values: plans in YAML, and the hive's settings in TOML.

It is the only package that knows pydantic and yaml, and what leaves it is plain dataclasses. It is not where anything
is decided or written: it reads one file, says everything that is wrong with it at once, and touches nothing else.
"""
