"""What shows a hive at work without a single agent: the demo; scripted agents and fault injection will live here too.

It drives the installed command like a person would, and believes only what it can count afterwards.
"""
