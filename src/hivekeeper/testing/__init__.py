"""What shows a hive at work without a model: scripted agents with faults, rehearsals, the demo, and their judge.

It drives the installed command like a person would, and believes only what it can count afterwards.
"""
