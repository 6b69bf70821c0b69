"""Numbers in sentences: 1 task is, 2 tasks are."""


def agree(number: int, one: str, more: str) -> str:
    """Choose the words that agree with a number."""
    return one if number == 1 else more


def say_count(number: int, noun: str, plural: str = "") -> str:
    """Say how many of something there are."""
    return f"{number:,} {agree(number, noun, plural or f'{noun}s')}"
