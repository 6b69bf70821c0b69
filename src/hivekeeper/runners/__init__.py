"""The agent programs the hive knows: how each is started, resumed and read. One file a program; none knows another.

Data and pure reading: no file is opened here, no process started.
"""

from collections.abc import Callable

from hivekeeper.domain.runner import Runner
from hivekeeper.runners import aider, claude, codex, copilot, gemini, goose, mini, opencode, pi, qwen
from hivekeeper.runners.command import CommandReader
from hivekeeper.runners.reading import Reader

_READERS: dict[str, Callable[[], Reader]] = {
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
}
PRESETS: dict[str, Runner] = {
    runner.name: runner
    for runner in (
        *(claude.RUNNER, codex.RUNNER, gemini.RUNNER, goose.RUNNER, pi.RUNNER, opencode.RUNNER, qwen.RUNNER),
        *(copilot.RUNNER, aider.RUNNER, mini.RUNNER),
    )
}
OUTPUTS = tuple(_READERS)
CONFIGURATION = tuple(sorted({path for runner in PRESETS.values() for path in runner.configuration}))


def make_reader(runner: Runner) -> Reader:
    """Make who reads what a runner says."""
    return _READERS[runner.output]() if runner.output in _READERS else CommandReader(runner.signs)
