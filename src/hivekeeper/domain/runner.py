"""How a worker is started: which command, and how it is told what to do."""

from dataclasses import dataclass
from enum import StrEnum

# Linux takes 32 pages as one argument; what the kernel says of more is no help.
_REFUSE_LONG = """[ "$(wc -c < "$HIVE_PROMPT")" -lt 131072 ] || {{
  echo 'the prompt is too long to be an argument; write prompt = "file" or "stdin" in [runners.{name}] of hive.toml' >&2
  exit 2
}}
"""


class PromptBy(StrEnum):
    """The way a prompt takes to a command. A worker always finds it in the file $HIVE_PROMPT too."""

    FILE = "file"
    STDIN = "stdin"
    ARGUMENT = "argument"


@dataclass(frozen=True, slots=True)
class Runner:
    """A command that works on a prompt; `{prompt}` in it stands for the file, or for the text itself.

    Where nothing stands for it, file or text become the last argument.
    """

    name: str
    command: str
    prompt: PromptBy = PromptBy.FILE

    def make_argv(self) -> tuple[str, ...]:
        """Make the argv; the prompt's text is read by the shell that starts it, so no ledger has it in an argv."""
        if self.prompt is PromptBy.STDIN:
            return ("sh", "-c", f'{{ {self.command}\n}} < "$HIVE_PROMPT"')
        said = '"$HIVE_PROMPT"' if self.prompt is PromptBy.FILE else '"$(cat -- "$HIVE_PROMPT")"'
        command = self.command if "{prompt}" in self.command else f"{self.command} {{prompt}}"
        check = _REFUSE_LONG.format(name=self.name) if self.prompt is PromptBy.ARGUMENT else ""
        return ("sh", "-c", check + command.replace("{prompt}", said))


def make_shell_argv(command: str) -> tuple[str, ...]:
    """Make the argv of a task that is a command itself."""
    return ("sh", "-c", command)
