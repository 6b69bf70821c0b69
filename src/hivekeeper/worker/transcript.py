"""What an agent does in a session, as its updates tell: text, tool calls, usage. Each becomes a record.

Programs count tokens in four places, and mean three different things by them; `UsageBy` says which. Cost is told for
the session so far, if at all. What is recorded is what was used since this process began to work on the session.
"""

from dataclasses import asdict, replace
from typing import Any

from hivekeeper.domain.report import Usage
from hivekeeper.runners.acp import UsageBy
from hivekeeper.runners.reading import as_list, as_micro, as_number, as_text, at
from hivekeeper.worker.records import Records

_OPEN = ("pending", "in_progress")
_MAX_TEXT = 64 << 10
_NOTHING = Usage()


class Transcript:
    """What a session has come to; `text` is what the agent has said after its last tool call in this turn.

    `total` is what the session has used since it was made, where the program tells that; `before` what of it another
    process has recorded.
    """

    def __init__(self, records: Records, usage_by: UsageBy, before: Usage = _NOTHING) -> None:
        self._records, self._usage_by = records, usage_by
        self._before = self.total = before
        self.text = ""
        self.acted = False
        self.turn_acted = False
        self.is_replaying = False
        self.frames = 0  # updates of any kind
        self.taken = 0  # tool calls, thoughts and ends of tool calls: signs that the model has read its prompt
        self.outputs = 0  # what the model has begun to say or do
        self.boundaries: list[int] = []  # for each tool call that has ended, the outputs by then
        self.taken_ids: set[str] = set()  # of messages that the program says it has given to the model
        self.run_id = ""  # of the turn, where a program names it
        self._open: dict[str, str] = {}
        self._ended: set[str] = set()
        self._used = _NOTHING
        self._context = 0
        self._message = ""

    @property
    def open_tool(self) -> str:
        """The title of a tool call that has not ended; "" if there is none."""
        return next(iter(self._open.values()), "")

    def begin_session(self) -> None:
        """Note that the session is new, so that nothing was used in it before."""
        self._before = self.total = _NOTHING

    def begin_turn(self) -> None:
        """Forget what was said before."""
        self.text, self.turn_acted, self.run_id = "", False, ""
        self._end_all()
        self._ended.clear()

    def take_update(self, update: dict[str, Any], now_s: float) -> None:
        """Take note of an update."""
        self.frames += 1
        kind = update.get("sessionUpdate")
        if kind == "usage_update":
            self._take_context(update)
        if kind == "session_info_update":
            match at(update, "_meta", "goose"):
                case {"activeRunId": run_id}:
                    self.run_id = as_text(run_id)
        if self.is_replaying:
            return
        match kind:
            case "agent_message_chunk":
                self._take_text(update, now_s)
            case "agent_thought_chunk":
                self.taken += 1
            case "user_message_chunk":
                self.taken_ids.add(as_text(update.get("messageId")))
            case "tool_call" | "tool_call_update":
                self._take_tool(update)

    def take_answer(self, result: dict[str, Any]) -> None:
        """Take note of what an answer to a prompt says was used, and of what it leaves open."""
        self._end_all()
        used = result.get("usage")
        quota = at(result, "_meta", "quota", "token_count")
        if isinstance(quota, dict) and not isinstance(used, dict):
            self._add(Usage(as_number(quota.get("input_tokens")), as_number(quota.get("output_tokens"))))
        elif isinstance(used, dict):
            self._take_usage(used)

    def _take_usage(self, used: dict[str, Any]) -> None:
        names = ("inputTokens", "outputTokens", "cachedReadTokens", "cachedWriteTokens", "totalTokens")
        tokens_in, tokens_out, read, written, total = (as_number(used.get(name)) for name in names)
        match self._usage_by:
            case UsageBy.TURN:
                # With some programs the input includes what was cached; then their total shows it.
                is_apart = not total or tokens_in + read + written + tokens_out <= total
                whole = tokens_in + read + written if is_apart else tokens_in
                self._add(Usage(whole, tokens_out, 0, read, written))
            case UsageBy.SESSION:
                self.total = replace(self.total, tokens_in=tokens_in, tokens_out=tokens_out)
                since = self.total - self._before
                self._used = Usage(since.tokens_in, since.tokens_out)
                self._tell_usage()
            case UsageBy.REQUEST:  # the context after each request was added up; part of the last one was output
                moved = min(tokens_out, self._used.tokens_in)
                self._add(Usage(-moved, moved) if self._used.tokens_in else Usage(tokens_in, tokens_out))
            case UsageBy.CHUNKS:
                pass

    def _take_context(self, update: dict[str, Any]) -> None:
        used = as_number(update.get("used"))
        if self._usage_by is UsageBy.REQUEST and used != self._context and not self.is_replaying:
            self._add(Usage(used))
        self._context = used
        cost = update.get("cost")
        if isinstance(cost, dict) and cost.get("currency", "USD") == "USD":
            self.total = replace(self.total, microusd=as_micro(cost.get("amount")))
            if self.is_replaying:
                self._before = replace(self._before, microusd=self.total.microusd)
            else:
                self._tell_usage()

    def _take_text(self, update: dict[str, Any], now_s: float) -> None:
        used = at(update, "_meta", "usage")
        if self._usage_by is UsageBy.CHUNKS and isinstance(used, dict):
            self._add(Usage(as_number(used.get("inputTokens")), as_number(used.get("outputTokens"))))
        text, message = as_text(at(update, "content", "text")), as_text(update.get("messageId"))
        if text:
            # Another message is another paragraph: that of an error would else stand in the middle of a line.
            text = f"\n\n{text}" if self.text and message != self._message else text
            self._message = message
            self.outputs += 1
            self.text = (self.text + text)[-_MAX_TEXT:]
            self._records.say(text, now_s)

    def _take_tool(self, update: dict[str, Any]) -> None:
        key, status = as_text(update.get("toolCallId")), update.get("status")
        self.taken += 1
        if key in self._ended:
            return
        is_new = key not in self._open and (update.get("sessionUpdate") == "tool_call" or status in _OPEN)
        if is_new:
            self.acted = self.turn_acted = True
            self.outputs += 1
            self.text = ""
            self._open[key] = as_text(update.get("title"))[:200]
            self._records.write("tool", state="begun", id=key, title=self._open[key])
        if status in ("completed", "failed") and key in self._open:
            self._end_tool(key, str(status))
        elif status in ("completed", "failed"):  # a tool that asked for permission may have no beginning
            self.acted = self.turn_acted = True
            self._records.write("tool", state="begun", id=key, title=as_text(update.get("title"))[:200])
            self._end_tool(key, str(status))

    def _end_tool(self, key: str, status: str) -> None:
        self._open.pop(key, None)
        self._ended.add(key)
        self.boundaries.append(self.outputs)
        self._records.write("tool", state="ended", id=key, status=status)

    def _end_all(self) -> None:
        for key in list(self._open):
            self._end_tool(key, "left")

    def _add(self, used: Usage) -> None:
        self._used += used
        self._tell_usage()

    def _tell_usage(self) -> None:
        used = replace(self._used, microusd=(self.total - self._before).microusd)
        self._records.write("usage", **asdict(used))


def find_model(result: dict[str, Any]) -> str:
    """Find the model in the answer to a new session."""
    named = as_text(at(result, "models", "currentModelId"))
    options = (option for option in as_list(result.get("configOptions")) if isinstance(option, dict))
    return named or next((as_text(o.get("currentValue")) for o in options if o.get("id") == "model"), "")
