"""mini-swe-agent: plain text; how it ended is in its trajectory, which its command prints at the end."""

import re
from dataclasses import replace
from typing import Any

from hivekeeper.domain.report import Outcome, Usage
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.runners.reading import Reader, as_micro, as_number, as_text, at
from hivekeeper.runners.signs import read_sign

_READ = (
    "import json,sys; t=json.load(open(sys.argv[1])); u=[(m.get('extra') or {}).get('response',{}).get('usage') or {} "
    "for m in t.get('messages',[])]; print(json.dumps({'type':'trajectory','info':t.get('info'),"
    "'input':sum(x.get('prompt_tokens',0) for x in u),'output':sum(x.get('completion_tokens',0) for x in u)}))"
)
RUNNER = Runner(
    name="mini",
    command=(
        'mini -t {prompt} -y --exit-immediately -o "$TMPDIR/trajectory.json" {args}; '
        f'python3 -c "{_READ}" "$TMPDIR/trajectory.json"'
    ),
    prompt=PromptBy.ARGUMENT,
    environment={"MSWEA_CONFIGURED": "true", "MSWEA_SILENT_STARTUP": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"},
    inherit=("OPENAI_API_KEY", "OPENAI_API_BASE", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "MSWEA_MODEL_NAME"),
    sign_in=("~/.config/mini-swe-agent/.env",),
    output="mini",
    log="tmp/trajectory.json",
)
_RETRIES = re.compile(r"Retrying .{0,300}?raised (\w{1,100}.{0,300})")
_ERROR = re.compile(r"\wError\b")
# What comes from the model's service has its name on it; anything else that ends it is its own.
_SERVICE = re.compile(r"litellm|openai|anthropic|gemini|API|BadRequest|NotFoundError", re.IGNORECASE)


class MiniReader(Reader):
    """Reads mini-swe-agent."""

    def take_event(self, event: dict[str, Any]) -> None:
        if event.get("type") != "trajectory":
            return
        status = as_text(at(event, "info", "exit_status"))
        calls = as_number(at(event, "info", "model_stats", "api_calls"))
        cost = as_micro(at(event, "info", "model_stats", "instance_cost"))
        self.usage = Usage(as_number(event.get("input")), as_number(event.get("output")), cost)
        self.turns, self.acted = calls, calls > 1
        if status == "Submitted":
            self.go_on()
            self.finished = True
            self.say(at(event, "info", "submission"))
        elif status:  # it has none while it works
            self._end_badly(status)

    def _end_badly(self, status: str) -> None:
        """Take its exception's name for what it is: the service's, its set-up's or its own."""
        words = f"{status} {self.problem.words if self.problem else ''}".strip()
        sign = read_sign(words)
        own = sign.outcome is Outcome.REFUSED and not _SERVICE.search(words)
        self.problem = replace(sign, outcome=Outcome.CRASHED) if own else sign

    def take_text(self, text: str) -> None:
        if found := _RETRIES.search(text):
            self.wait_for_limit(found[1])
        elif text.startswith("mini-swe-agent (step "):
            self.heard = True
            self.begin_tool()
        elif text.startswith(("Tool:", "User:")):
            self.open_tools = 0
        elif _ERROR.search(text):
            self.fail(text)
