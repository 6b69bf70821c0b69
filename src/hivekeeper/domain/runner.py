"""Runners: the command that starts an agent program, how it gets its prompt, and which credentials it may use.

A runner is data. Built-in runners (`hivekeeper.runners`) and those of a user's hive.toml are of the same type.
"""

import json
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from hivekeeper.domain.price import Price
from hivekeeper.domain.shell import skip_prefixes, split

# By these a worker's `hive` finds its mailbox, also where a program gives its MCP servers a clean environment.
WORKER_VARIABLES = ("HIVE_MAILBOX", "HIVE_PYTHON", "HIVE_TASK", "HIVE_START")
RUNNER_VARIABLE = "HIVE_RUNNER"  # names the runner of a session
MAX_ARGUMENT = 131_072  # Linux allows 32 pages per argument; its error for more is no help


class PromptBy(StrEnum):
    """How a command gets its prompt. It is always in the file $HIVE_PROMPT too."""

    FILE = "file"
    STDIN = "stdin"
    ARGUMENT = "argument"


class Reach(StrEnum):
    """How a message reaches a running session.

    INTERRUPT stops it between turns and resumes it with the message; a SESSION takes its mail itself while it works.
    """

    INTERRUPT = "interrupt"
    SESSION = "session"
    NONE = "none"


class McpBy(StrEnum):
    """How a program is configured with MCP servers; NONE does not support them."""

    NONE = "none"
    FLAG = "flag"
    FILE = "file"


@dataclass(frozen=True, slots=True)
class Mcp:
    """How a program's MCP servers are configured: by one flag per server, or by a file in its home.

    In `flag`, {name} is replaced by the server's name, {line} by its command line, {command} and {args} by the same as
    JSON, and {variables} by the JSON list of `WORKER_VARIABLES`. In `text`, {servers} is replaced by the JSON mapping
    of all of them, each with what `extra` adds; `flag` may then name the file as {file}. A program for which it
    `is_list` takes a server's command and arguments as one list.
    A program for which it `is_kept` knows a session's servers when it resumes it, and refuses to be told again.
    """

    by: McpBy = McpBy.NONE
    flag: str = ""
    file: str = ""
    text: str = ""
    extra: Mapping[str, object] = field(default_factory=dict)
    is_list: bool = False
    is_kept: bool = False

    def describe(self, argv: Sequence[str]) -> dict[str, object]:
        """Write a server's command as the program's file has it."""
        return {"command": list(argv)} if self.is_list else {"command": argv[0], "args": list(argv[1:])}


@dataclass(frozen=True, slots=True)
class Runner:
    """A command that works on a prompt; `{prompt}` in it is replaced by the file, or by the text itself.

    Without `{prompt}`, file or text become the last argument. `{session}` is replaced by the session's id, which the
    hive chooses; if it is only in `resume`, the program chooses it and prints it. `inherit` names variables of the
    user's environment (keys), `sign_in` files of their home that are copied into the worker's, and `home` files that
    are created there. `acp` is the program's own command if `command` talks to it over the Agent Client Protocol.
    `output` names the reader of its output. `configuration` are files of a repository that it
    obeys; `ignore` are patterns of files that it leaves there, which never land. `log` is the pattern of its session
    logs in a worker's sandbox.
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
    acp: str = ""
    mcp: Mcp = Mcp()
    servers: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    log: str = ""
    configuration: tuple[str, ...] = ()
    ignore: tuple[str, ...] = ()
    price: Price | None = None

    @property
    def can_resume(self) -> bool:
        """Whether a session can be resumed."""
        return bool(self.resume)

    @property
    def chooses_session(self) -> bool:
        """Whether the hive chooses the session's id."""
        return "{session}" in self.command

    @property
    def speaks(self) -> bool:
        """Whether its output says how it ended; otherwise only the exit code does."""
        return bool(self.output or self.signs)

    @property
    def program(self) -> str:
        """The name of the program on the PATH."""
        return next(iter(skip_prefixes(split(self.acp or self.command))), "")

    def find_model(self, environment: Mapping[str, str]) -> str:
        """Find its model, if its command line or environment names one."""
        words = split(f"{self.args} {self.acp or self.command}")
        for word, following in zip(words, [*words[1:], ""], strict=False):  # a removed runner has no words
            if word in ("--model", "-m"):
                return following
            if word.startswith("--model="):
                return word.partition("=")[2]
        names = (name for name in self.inherit if name.endswith(("_MODEL", "_MODEL_NAME")))
        return next((found for name in names if (found := {**environment, **self.environment}.get(name))), "")

    def find_log(self, session: str | None) -> str:
        """Return the pattern of a session's logs below a worker's sandbox; "" if it writes none."""
        return self.log.replace("{session}", session or "*")

    def list_paths(self) -> Iterator[tuple[str, str]]:
        """List the absolute paths in its commands, also those of options (`--root=/path`), each with its key."""
        for key, words in (*self.list_commands(), ("args", split(self.args))):
            found = (word.partition("=")[2] if word.startswith("-") else word for word in words)
            yield from ((key, word) for word in found if word.startswith("/"))

    def list_commands(self) -> Iterator[tuple[str, Sequence[str]]]:
        """List the words of what it starts, each command with its key: its program, and its MCP servers."""
        yield ("acp", split(self.acp)) if self.acp else ("command", split(self.command))
        yield from ((f"mcp.{name}", argv) for name, argv in self.servers.items())

    def with_server(self, name: str, argv: tuple[str, ...]) -> "Runner":
        """Add an MCP server, unless the program takes none or one of this name is configured."""
        if self.mcp.by is McpBy.NONE or name in self.servers:
            return self
        return replace(self, servers={name: argv, **self.servers})

    def make_argv(self, session: str = "", *, resume: bool = False) -> tuple[str, ...]:
        """Build the argv; a shell reads the prompt's text, so that the argv in the ledger does not contain it."""
        command = self.resume if resume else self.command
        given, before = ("", "") if resume and self.mcp.is_kept else self._give_servers()
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
        """Return what its MCP servers add: words of its command line, and shell commands before it."""
        if not self.servers or self.mcp.by is McpBy.NONE:
            return "", ""
        if self.mcp.by is McpBy.FLAG:
            words = [
                shlex.quote(
                    word.replace("{name}", name)
                    .replace("{line}", " ".join(argv))
                    .replace("{command}", json.dumps(argv[0]))
                    .replace("{args}", json.dumps(argv[1:]))
                    .replace("{variables}", json.dumps(WORKER_VARIABLES))
                )
                for name, argv in self.servers.items()
                for word in self.mcp.flag.split()
            ]
            return " ".join(words), ""
        servers = {name: {**self.mcp.describe(argv), **self.mcp.extra} for name, argv in self.servers.items()}
        text = self.mcp.text.replace("{servers}", json.dumps(servers))
        return self.mcp.flag.replace("{file}", f'"$HOME"/{self.mcp.file}'), _write(self.mcp.file, text)


_REFUSE_LONG = """[ "$(wc -c < "$HIVE_PROMPT")" -lt 131072 ] || {{
  echo 'the prompt is too long to be an argument; write prompt = "file" or "stdin" in [runners.{name}] of hive.toml' >&2
  exit 2
}}
"""
# A prompt that is too long for an argument is replaced by its path: an agent program can read a file.
_READ_PROMPT = f"""prompt=$(cat -- "$HIVE_PROMPT")
[ "$(wc -c < "$HIVE_PROMPT")" -lt {MAX_ARGUMENT} ] || prompt="Your task is in the file $HIVE_PROMPT. Read it."
"""


def _copy(path: str) -> str:
    """Return the line that copies a file from the user's home, unless the worker's copy is newer: it was renewed."""
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
    """Build the argv of a shell command."""
    return ("sh", "-c", command)
