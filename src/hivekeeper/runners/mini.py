"""mini-swe-agent: plain text; how it ended is in its trajectory, which its command prints at the end."""

import re
from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import PromptBy, Runner
from hivekeeper.runners.reading import Reader, as_micro, as_number, as_text, at

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
)
_RETRIES = re.compile(r"Retrying .{0,300}?raised (\w{1,100})")
_ERROR = re.compile(r"\wError\b")


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
            self.fail(f"{status} {self.said[-300:]}")

    def take_text(self, text: str) -> None:
        if found := _RETRIES.search(text):
            self.wait_for_limit(found[1])
        elif text.startswith("mini-swe-agent (step "):
            self.go_on()
        elif _ERROR.search(text):
            self.fail(text)
