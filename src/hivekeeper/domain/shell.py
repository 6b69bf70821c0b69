"""Reads shell commands as far as needed to find the programs that they start.

This is no shell: what a variable or a substitution comes to is not known here.
"""

import re
import shlex
from collections.abc import Mapping, Sequence

# Words of the shell itself, which are not on the PATH.
KEYWORDS = frozenset({"!", "{", "if", "then", "elif", "else", "while", "until", "do", "for", "case"})
BUILTINS = frozenset(
    {".", ":", "[", "cd", "command", "eval", "exec", "export", "read", "set", "source", "test", "time", "trap",
     "ulimit", "umask", "unset"}
)  # fmt: skip
# Programs that start another one, with their options that take a value.
WRAPPERS: Mapping[str, frozenset[str]] = {
    "command": frozenset(),
    "env": frozenset({"-u", "--unset", "-C", "--chdir"}),
    "exec": frozenset({"-a"}),
    "ionice": frozenset({"-c", "--class", "-n", "--classdata"}),
    "nice": frozenset({"-n", "--adjustment"}),
    "nohup": frozenset(),
    "setsid": frozenset(),
    "stdbuf": frozenset({"-i", "--input", "-o", "--output", "-e", "--error"}),
    "time": frozenset({"-f", "--format", "-o", "--output"}),
    "timeout": frozenset({"-k", "--kill-after", "-s", "--signal"}),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=.*", re.DOTALL)
_INTERPRETER = re.compile(r"(ba|da|z)?sh|python[\d.]*|node|perl|ruby|\.|source")
_OPERATORS = frozenset(";&|()\n")
_PUNCTUATION = "();<>|&\n"


def split(command: str) -> list[str]:
    """Split a command into words and operators; an end of a line is an operator."""
    lexer = shlex.shlex(command.strip(), posix=True, punctuation_chars=_PUNCTUATION)
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        return list(lexer)
    except ValueError:  # an unclosed quote: the shell will report it
        return command.split()


def is_operator(word: str) -> bool:
    """Tell whether a word ends a command and begins another; a redirection does not."""
    return bool(word) and _OPERATORS.issuperset(word)


def is_assignment(word: str) -> bool:
    """Tell whether a word sets a variable."""
    return _ASSIGNMENT.fullmatch(word) is not None


def get_name(program: str) -> str:
    """Return a program's name without its directory."""
    return program.rpartition("/")[2]


def is_wrapper(word: str) -> bool:
    """Tell whether a word is a program that starts another one; a file of that name in a repository is not."""
    return get_name(word) in WRAPPERS and (word.startswith("/") or "/" not in word)


def skip_prefixes(words: Sequence[str]) -> list[str]:
    """Skip what stands before the program of a command: variables, keywords, and wrappers with their options."""
    rest = list(words)
    while rest and (rest[0] in KEYWORDS or is_assignment(rest[0]) or is_wrapper(rest[0])):
        first = rest.pop(0)
        if is_wrapper(first):
            name = get_name(first)
            while rest and rest[0].startswith("-"):
                has_value = rest.pop(0) in WRAPPERS[name]
                del rest[:has_value]
            del rest[: name == "timeout"]  # its time
    return rest


def find_script(words: Sequence[str]) -> str:
    """Find the script of a command whose program is an interpreter; "" if there is none."""
    if not words or not _INTERPRETER.fullmatch(get_name(words[0])):
        return ""
    script = next((word for word in words[1:] if is_operator(word) or not word.startswith("-")), "")
    return "" if is_operator(script) else script
