"""Benchmarks: where possible a ratio within one run, against what the same machine does at the same moment.

They drive the package from outside and are not installed with it: `make bench` runs them.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One measured number, and its goal."""

    name: str
    value: float
    unit: str
    goal: str
    reached: bool
    detail: str = ""
