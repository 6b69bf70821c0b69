"""The agent programs the hive knows: how each is started, resumed and read. One file a program; none knows another.

Data and pure reading: no file is opened here, no process started.
"""

from collections.abc import Mapping
from types import MappingProxyType

from hivekeeper.domain.price import Price, Prices
from hivekeeper.domain.runner import Runner
from hivekeeper.runners import acp, aider, claude, codex, copilot, gemini, goose, mini, opencode, pi, qwen
from hivekeeper.runners.command import CommandReader
from hivekeeper.runners.prices import PRICES
from hivekeeper.runners.reading import MAX_HEAD, Reader

_READERS: dict[str, type[Reader]] = {
    "claude": claude.ClaudeReader,
    "codex": codex.CodexReader,
    "gemini": gemini.GeminiReader,
    "goose": goose.GooseReader,
    "pi": pi.PiReader,
    "opencode": opencode.OpencodeReader,
    "qwen": qwen.QwenReader,
    "copilot": copilot.CopilotReader,
    "aider": aider.AiderReader,
    "mini": mini.MiniReader,
    "acp": acp.AcpReader,
}
PRESETS: dict[str, Runner] = {
    runner.name: runner
    for runner in (
        *(claude.RUNNER, codex.RUNNER, gemini.RUNNER, goose.RUNNER, pi.RUNNER, opencode.RUNNER, qwen.RUNNER),
        *(copilot.RUNNER, aider.RUNNER, mini.RUNNER),
    )
}
OUTPUTS = tuple(name for name in _READERS if name != "acp")  # those a table of hive.toml may name
CONFIGURATION = tuple(sorted({path for runner in PRESETS.values() for path in runner.configuration}))

_PIECES = tuple({word for reader in _READERS.values() for word in reader.skip})


def is_piece(line: bytes) -> bool:
    """Tell whether a line is a piece of something that a program tells as a whole later on."""
    return any(word in line[:MAX_HEAD] for word in _PIECES)


def make_reader(runner: Runner, prices: Mapping[str, Price] = MappingProxyType(PRICES), model: str = "") -> Reader:
    """Make who reads what a runner says; `model` is what it is taken for until it tells its model itself."""
    reader = _READERS[runner.output]() if runner.output in _READERS else CommandReader(runner.signs)
    reader.prices, reader.model = Prices(prices, runner.price), model
    return reader
