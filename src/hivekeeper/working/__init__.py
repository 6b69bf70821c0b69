"""What the dispatcher reads about attempts: their evidence, their starting point, and their prompts.

Functions of one loop, separate because each can be read alone. They write nothing but prompt files.
"""
