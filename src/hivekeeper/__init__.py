"""Hivekeeper keeps a hive of AI coding agents working unattended."""

__version__ = "0.1.0"
