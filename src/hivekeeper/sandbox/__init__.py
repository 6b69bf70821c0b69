"""What keeps a run inside: isolation as strong as this machine can build it, tried out before it is believed.

It knows processes and directories; it does not know what a task, a worker or a hive is.
"""
