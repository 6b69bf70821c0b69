"""The pure part: names, events, state machines, decisions.

It is what the hive *means*. It is not where anything happens: no file, no process, no clock, no database.
"""
