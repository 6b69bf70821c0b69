"""What people and programs are shown: plain JSON values made from the tables, the same for every edge.

They change nothing and decide nothing; the command line prints them, as text or as they are.
"""
