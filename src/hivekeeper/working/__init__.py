"""What the dispatcher finds out about attempts: what they made, where they start, what they are told.

Functions for one loop, apart from it because each can be read alone. They read; nothing here is written but prompts.
"""
