"""Words of others in a prompt: between fences that they cannot close."""


def fence(text: str) -> str:
    """Put a text between fences that are longer than any run of backticks in it."""
    marks = "`" * max(3, _longest_run(text) + 1)
    return f"{marks}\n{text}\n{marks}"


def _longest_run(text: str) -> int:
    longest = run = 0
    for character in text:
        run = run + 1 if character == "`" else 0
        longest = max(longest, run)
    return longest
