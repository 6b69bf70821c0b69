"""From a goal, or from issues, to a plan that a person may run.

A runner is asked, and what it answers is checked like any plan. It is no way to submit one: it writes no event.
"""
