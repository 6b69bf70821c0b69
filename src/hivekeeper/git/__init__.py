"""Git: reading the hive's own mirror, and the orders (scripts) that change it.

It never runs git inside a worker's tree, and it decides nothing about merging.
"""
