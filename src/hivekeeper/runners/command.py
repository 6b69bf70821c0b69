"""Any other command: it ends well with exit code 0, unless what it says is one of the signs that its runner names."""

import re
from collections.abc import Mapping

from hivekeeper.domain.report import Outcome, Report
from hivekeeper.runners.reading import Reader, as_text
from hivekeeper.runners.signs import Sign, find_retry_s

SIGNS = ("session", "done", *(outcome.value for outcome in Outcome if outcome is not Outcome.DONE))


class CommandReader(Reader):
    """Reads a command by patterns: of the session's id, of having done its work, and of each way to fail."""

    tells_waiting = False
    max_said = 8000

    def __init__(self, signs: Mapping[str, str]) -> None:
        super().__init__()
        self._signs = {name: re.compile(pattern) for name, pattern in signs.items()}

    def take(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace")
        self.said = f"{self.said}\n{text}"[-self.max_said :]
        for name, pattern in self._signs.items():
            if found := pattern.search(text):
                self._note(name, found, text)

    def _note(self, name: str, found: re.Match[str], text: str) -> None:
        match name:
            case "session":
                self.name(found[found.lastindex or 0])
            case "done":
                self.finished = self.acted = True
                self.go_on()
            case _:
                self.problem = Sign(Outcome(name), as_text(text.strip())[:600], find_retry_s(text))

    def report(self, exit_status: int | None, ended_by: str | None, *, must_act: bool) -> Report:
        if "done" not in self._signs:
            self.finished, self.acted = exit_status == 0, True
        return super().report(exit_status, ended_by, must_act=must_act)
