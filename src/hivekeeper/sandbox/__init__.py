"""What keeps a run inside: walls as strong as this machine can build them, tried out before they are believed.

It knows processes and directories; it does not know what a task, a worker or a hive is.
"""
