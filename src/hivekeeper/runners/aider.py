"""Aider: plain text, no session, commits by itself; what it says of tokens and errors is in sentences."""

import re

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.runners.reading import Reader

_FLAGS = (
    "--yes-always --no-show-model-warnings --no-check-update --analytics-disable --no-pretty --no-stream "
    "--no-gitignore --no-show-release-notes"
)
RUNNER = Runner(
    name="aider",
    command=f"aider {_FLAGS} {{args}} --message-file {{prompt}}",
    prompt=PromptBy.FILE,
    environment={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},  # else it asks the network for prices first
    inherit=(
        "OPENAI_API_KEY",
        "OPENAI_API_BASE",
        "ANTHROPIC_API_KEY",
        "GEMINI_API_KEY",
        "OPENROUTER_API_KEY",
        "AIDER_MODEL",
    ),
    sign_in=("~/.aider.conf.yml",),
    output="aider",
    log="work/.aider.chat.history.md",
    configuration=(".aider.conf.yml", ".aider.model.settings.yml", ".env"),
    ignore=("/.aider.chat.history.md", "/.aider.input.history", "/.aider.llm.history", "/.aider.tags.cache.v*/"),
)
_NUMBER = r"(\d{1,12}(?:\.\d{1,12})?)"
_TOKENS = re.compile(rf"Tokens: {_NUMBER}(k?) sent(?:, [\d.]+k? cache \w+)*, {_NUMBER}(k?) received")
_COST = re.compile(rf"Cost: \${_NUMBER} message")
_ERROR = re.compile(r"litellm\.\w*Error|has hit a token limit!|The API provider|Unable to (?:connect|find)")
_DEED = re.compile(r"Applied edit to|^Commit [0-9a-f]{7}")


_BANNER = re.compile(
    r"(Aider v|(Main |Weak |Editor )?[Mm]odel: |Git repo: |Repo-map: |Warning: |Analytics |Update git |Added .* to the "
    r"chat|https?://|HTTPSConnectionPool|Can't initialize|Creating empty file|Newer aider|Note: )"
)


class AiderReader(Reader):
    """Reads Aider."""

    _erring = False  # the last line was an error, and this one may go on with it

    def take_text(self, text: str) -> None:
        erring, self._erring = self._erring, False
        if found := _TOKENS.search(text):
            self._take_tokens(found, text)
        elif text.startswith("Retrying in") and self.problem:
            self.wait_for_limit(f"{self.problem.words} {text}")
        elif text.startswith("The API provider") and self.problem:
            pass  # the line before said it better
        elif _ERROR.search(text):
            self.fail(text)
            self._erring = True
        elif erring and text.strip() and self.problem:
            self.fail(f"{self.problem.words} {text}")
            self._erring = True
        elif _DEED.search(text):
            self.acted = True
        elif text.startswith("Empty response received"):
            self.go_on()
        elif text.strip() and self.problem is None and not _BANNER.match(text):
            self.said = f"{self.said}\n{text}"[-4000:]

    def _take_tokens(self, found: re.Match[str], text: str) -> None:
        self.finished = True
        self.turns += 1
        self.go_on()
        sent, received = (round(float(found[n]) * (1000 if found[n + 1] else 1)) for n in (1, 3))
        cost = _COST.search(text)
        self.usage += Usage(sent, received, round(float(cost[1]) * 1e6) if cost else 0)

    def take(self, line: bytes) -> None:
        """Take note of a line: none of them is JSON, whatever an edit holds."""
        text = line.decode("utf-8", "replace")
        self.heard = self.heard or text.startswith("Aider v")
        self.take_line(text)
