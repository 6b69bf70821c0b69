"""How a worker is started: which command, how it is told what to do, what of the person's it may know.

A runner is data. Those the hive brings (`hivekeeper.runners`) and those of a person's hive.toml are of the same kind.
"""

import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from hivekeeper.domain.price import Price

MAX_ARGUMENT = 131_072  # Linux takes 32 pages as one; what the kernel says of more is no help


class PromptBy(StrEnum):
    """The way a prompt takes to a command. A worker always finds it in the file $HIVE_PROMPT too."""

    FILE = "file"
    STDIN = "stdin"
    ARGUMENT = "argument"


class Reach(StrEnum):
    """How a message gets to a session under way: it is ended between turns and resumed with the message, or not."""

    INTERRUPT = "interrupt"
    NONE = "none"


class McpBy(StrEnum):
    """How a program is given MCP servers; NONE knows none."""

    NONE = "none"
    FLAG = "flag"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Mcp:
    """How one program is told of MCP servers: a word of its command line a server, or a file in its home.

    In `flag`, {name} stands for a server, {line} for its command line, {command} and {args} for the same as JSON. In
    `text`, {servers} stands for the JSON mapping of all of them; `flag` may then name the file as {file}.
    """

    by: McpBy = McpBy.NONE
    flag: str = ""
    file: str = ""
    text: str = ""


@dataclass(frozen=True, slots=True)
class Runner:
    """A command that works on a prompt; `{prompt}` in it stands for the file, or for the text itself.

    Where nothing stands for it, file or text become the last argument. `{session}` stands for the session's id, which
    the hive chooses; where it stands only in `resume`, the program chooses and tells it. `inherit` are names of the
    person's environment (keys), `sign_in` files of their home, copied to the worker's own. `home` are files it finds
    there. `output` names who reads what it says; `configuration` are files of a repository that it obeys, `ignore`
    those that it leaves there itself, as .gitignore has them: they never land. `log` is where in a worker's sandbox it
    writes its session down.
    """

    name: str
    command: str
    prompt: PromptBy = PromptBy.FILE
    resume: str = ""
    args: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    inherit: tuple[str, ...] = ()
    sign_in: tuple[str, ...] = ()
    home: Mapping[str, str] = field(default_factory=dict)
    output: str = ""
    signs: Mapping[str, str] = field(default_factory=dict)
    reach: Reach = Reach.NONE
    mcp: Mcp = Mcp()
    servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    log: str = ""
    configuration: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    price: Price | None = None

    @property
    def can_resume(self) -> bool:
        """Tell whether a session can be gone on with."""
        return bool(self.resume)

    @property
    def chooses_session(self) -> bool:
        """Tell whether the hive chooses the session's id."""
        return "{session}" in self.command

    @property
    def speaks(self) -> bool:
        """Tell whether anybody can read from what it says how it ended; of the others the exit code is all there is."""
        return bool(self.output or self.signs)

    @property
    def program(self) -> str:
        """The program itself, as it is found on the PATH."""
        words = self.command.split()
        return next((word for word in words if "=" not in word and word not in ("env", "exec")), "")

    def find_model(self, environment: Mapping[str, str]) -> str:
        """Find the model that it is started with, as far as its command line or its environment says."""
        words = _split(f"{self.args} {self.command}")
        for word, following in zip(words, [*words[1:], ""], strict=False):  # one that hive.toml has no more has none
            if word in ("--model", "-m"):
                return following
            if word.startswith("--model="):
                return word.partition("=")[2]
        names = (name for name in self.inherit if name.endswith(("_MODEL", "_MODEL_NAME")))
        return next((found for name in names if (found := {**environment, **self.environment}.get(name))), "")

    def find_log(self, session: str | None) -> str:
        """Say where its log of a session is, as a pattern below a worker's sandbox; nothing where it writes none."""
        return self.log.replace("{session}", session or "*")

    def list_paths(self) -> Iterator[tuple[str, str]]:
        """List the absolute paths that its command and its MCP servers name, each with the key that does."""
        for key, command in (("command", self.command), ("args", self.args)):
            yield from ((key, word) for word in _split(command) if word.startswith("/"))
        for name, argv in self.servers.items():
            yield from ((f"mcp.{name}", word) for word in argv if word.startswith("/"))

    def make_argv(self, session: str = "", *, resume: bool = False) -> tuple[str, ...]:
        """Make the argv; the prompt's text is read by the shell that starts it, so no ledger has it in an argv."""
        command = self.resume if resume else self.command
        given, before = self._give_servers()
        more = " ".join(part for part in (self.args, given) if part)
        command = command.replace("{args}", more) if "{args}" in command else f"{command} {more}".rstrip()
        command = command.replace("{session}", shlex.quote(session))
        prepared = "".join((*map(_copy, self.sign_in), *(_write(*file) for file in self.home.items()), before))
        if self.prompt is PromptBy.STDIN:
            return ("sh", "-c", f'{prepared}{{ {command}\n}} < "$HIVE_PROMPT"')
        said = '"$HIVE_PROMPT"' if self.prompt is PromptBy.FILE else '"$prompt"'
        command = command if "{prompt}" in command else f"{command} {{prompt}}"
        check = "" if self.output else _REFUSE_LONG.format(name=self.name)
        read = check + _READ_PROMPT if self.prompt is PromptBy.ARGUMENT else ""
        return ("sh", "-c", prepared + read + command.replace("{prompt}", said))

    def _give_servers(self) -> tuple[str, str]:
        """Say how its MCP servers are given to it: more words of its command, and what comes before."""
        if not self.servers or self.mcp.by is McpBy.NONE:
            return "", ""
        if self.mcp.by is McpBy.FLAG:
            words = [
                shlex.quote(
                    word.replace("{name}", name)
                    .replace("{line}", " ".join(argv))
                    .replace("{command}", json.dumps(argv[0]))
                    .replace("{args}", json.dumps(argv[1:]))
                )
                for name, argv in self.servers.items()
                for word in self.mcp.flag.split()
            ]
            return " ".join(words), ""
        servers = {name: {"command": argv[0], "args": list(argv[1:])} for name, argv in self.servers.items()}
        text = self.mcp.text.replace("{servers}", json.dumps(servers))
        return self.mcp.flag.replace("{file}", f'"$HOME"/{self.mcp.file}'), _write(self.mcp.file, text)


_REFUSE_LONG = """[ "$(wc -c < "$HIVE_PROMPT")" -lt 131072 ] || {{
  echo 'the prompt is too long to be an argument; write prompt = "file" or "stdin" in [runners.{name}] of hive.toml' >&2
  exit 2
}}
"""
# What is too long for an argument is named instead: a program that reads prompts can read a file.
_READ_PROMPT = f"""prompt=$(cat -- "$HIVE_PROMPT")
[ "$(wc -c < "$HIVE_PROMPT")" -lt {MAX_ARGUMENT} ] || prompt="Your task is in the file $HIVE_PROMPT. Read it."
"""


def _split(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:  # a quote that nobody closed: the shell will say so
        return command.split()


def _copy(path: str) -> str:
    """Write the line that copies a file of the person's home, unless what the worker has is newer: it was renewed."""
    target = path.removeprefix("~/")
    target = target.rpartition("/")[2] if target.startswith("/") else target
    source = '"$HIVE_HOME"/' + shlex.quote(path[2:]) if path.startswith("~/") else shlex.quote(path)
    place = f'"$HOME"/{shlex.quote(target)}'
    make = f'mkdir -p -- "$(dirname -- {place})" && cp -- {source} {place}'
    return f"[ ! -f {source} ] || [ {place} -nt {source} ] || {{ {make}; }}\n"


def _write(path: str, text: str) -> str:
    return _unless_there(path, f'printf %s {shlex.quote(text)} > "$HOME"/{shlex.quote(path)}')


def _unless_there(path: str, make: str) -> str:
    place = f'"$HOME"/{shlex.quote(path)}'
    return f'[ -e {place} ] || {{ mkdir -p -- "$(dirname -- {place})" && {make}; }}\n'


def make_shell_argv(command: str) -> tuple[str, ...]:
    """Make the argv of a task that is a command itself."""
    return ("sh", "-c", command)
