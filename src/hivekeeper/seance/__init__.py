"""What earlier attempts tried, what failed and what worked: read from their records, collected in an index, and cited.

It reads and never decides: nothing the hive does depends on the index, which can be made again at any moment.
"""
