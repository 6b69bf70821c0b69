"""Benchmarks: each figure a ratio within one run, against what the machine itself can do at that moment.

They drive the package from outside and are no part of it: nothing imports them but the command that runs them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and what it is held against."""

    name: str
    value: float
    unit: str
    goal: str
    reached: bool
    detail: str = ""
