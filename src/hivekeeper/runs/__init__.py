"""The run primitive: every effect that is not a row, started once, watched, limited, ended whole, and found again.

It is not where anybody decides what should run or what an ending means; that is the loops'.
"""
