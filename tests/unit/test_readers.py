"""What each agent program says, and what it comes to: done, every way to fail, and output that nobody has foreseen."""

import json
import tracemalloc
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hivekeeper.domain.report import Outcome, Report, Usage
from hivekeeper.domain.runner import Runner
from hivekeeper.runners import PRESETS, make_reader
from hivekeeper.runners.reading import MAX_LAST_WORDS, MAX_SAID, Lines, Reader
from hivekeeper.runners.signs import MAX_RETRY_S, MAX_WORDS, find_retry_s, read_sign

DONE, EMPTY, REFUSED, CRASHED = Outcome.DONE, Outcome.EMPTY, Outcome.REFUSED, Outcome.CRASHED
KILLED, LIMITED, QUOTA, AUTH = Outcome.KILLED, Outcome.RATE_LIMITED, Outcome.QUOTA, Outcome.AUTH
CONTEXT, FAILED, SILENT, SETUP = Outcome.CONTEXT_LIMIT, Outcome.SERVER_ERROR, Outcome.NO_ANSWER, Outcome.SETUP
SAID = "All done, the file is there."
ID = "11111111-2222-4333-8444-555555555555"
Said = tuple[str, ...]


def dump(event_type: str, **fields: object) -> str:
    return json.dumps({"type": event_type, **fields}, separators=(",", ":"))


def feed(reader: Reader, chunks: Iterable[bytes]) -> Reader:
    lines = Lines()
    for chunk in chunks:
        for line in lines.feed(chunk):
            reader.take(line)
    for line in lines.end():
        reader.take(line)
    return reader


def listen(program: str, said: Iterable[str | bytes]) -> Reader:
    """Read lines as that program's, the last of which nobody ended."""
    whole = b"\n".join(line if isinstance(line, bytes) else line.encode() for line in said)
    return feed(make_reader(PRESETS[program]), [whole])


def read(program: str, *said: str | bytes, status: int | None = 0, by: str | None = "exit") -> Report:
    return listen(program, said).report(status, by, must_act=True)


# Claude Code and Qwen Code.


def claude(kind: str, subtype: str | None = None, **fields: object) -> str:
    return dump(kind, session_id=ID, **({"subtype": subtype} if subtype else {}), **fields)


def claude_says(message: str, usage: int, **part: object) -> str:
    used = {"input_tokens": usage, "output_tokens": 1}
    return claude("assistant", message={"id": message, "role": "assistant", "content": [part], "usage": used})


def claude_fails(words: str, status: int | None = None, reason: str = "api_error") -> str:
    ends = {"is_error": True, "result": words, "api_error_status": status, "terminal_reason": reason}
    return claude("result", "success", **ends)


CLAUDE_START = claude("system", "init", tools=["Bash"])
CLAUDE_DEED = (claude_says("m1", 9, type="tool_use", name="Bash"), claude("user", message={"content": []}))
CLAUDE_TALK = claude_says("m2", 12, type="text", text=SAID)
CLAUDE_USED = {
    "input_tokens": 10, "cache_creation_input_tokens": 200, "cache_read_input_tokens": 3000, "output_tokens": 40,
}  # fmt: skip
CLAUDE_ENDS = claude("result", "success", is_error=False, result=SAID, usage=CLAUDE_USED)
CLAUDE_PAID = claude("result", "success", is_error=False, result=SAID, usage=CLAUDE_USED, total_cost_usd=0.0123)
CLAUDE_WAITS = claude("system", "api_retry", attempt=1, retry_delay_ms=587, error_status=429, error="rate_limit")


def claude_refused(attempt: int) -> str:
    told = {"attempt": attempt, "retry_delay_ms": 551, "error_status": 401, "error": "authentication_failed"}
    return claude("system", "api_retry", **told)


QWEN_WAITS = claude("system", "retry", data={"attempt": 1, "maxRetries": 10, "delayMs": 60000})


def qwen_fails(words: str) -> str:
    return claude("result", "error_during_execution", is_error=True, error={"message": f"[API Error: {words}]"})


# Codex, Gemini CLI, Goose and Pi: what they were heard to say.

CODEX_START = (
    dump("thread.started", thread_id=ID),
    dump("item.completed", item={"type": "error", "message": "Model metadata for `fake-1` not found."}),
    dump("turn.started"),
)
CODEX_DEED = dump("item.completed", item={"type": "command_execution", "command": "ls", "exit_code": 0})
CODEX_BEGINS = dump("item.started", item={"type": "command_execution", "command": "sleep 9999"})
CODEX_TALK = dump("item.completed", item={"type": "agent_message", "text": SAID})
CODEX_ENDS = dump("turn.completed", usage={"input_tokens": 25274, "cached_input_tokens": 0, "output_tokens": 170})
CODEX_LIMIT = "exceeded retry limit, last status: 429 Too Many Requests"
CODEX_WAITS = dump("error", message=f"Reconnecting... 1/5 ({CODEX_LIMIT})")
CODEX_LONG = '{"error": {"message": "maximum context length is 128000", "code": "context_length_exceeded"}}'


def codex_fails(words: str) -> Said:
    return (*CODEX_START, dump("error", message=words), dump("turn.failed", error={"message": words}))


GEMINI_START = (
    "YOLO mode is enabled. All tool calls will be automatically approved.",
    dump("init", session_id=ID, model="gemini-2.5-flash"),
    dump("message", role="user", content="Please create made.txt and commit it.\n"),
)
GEMINI_DEED = (dump("tool_use", tool_name="write_file"), dump("tool_result", status="success"))
GEMINI_TALK = tuple(dump("message", role="assistant", content=text, delta=True) for text in (SAID[:9], SAID[9:]))
GEMINI_ENDS = dump("result", status="success", stats={"input_tokens": 29763, "output_tokens": 175})
GEMINI_WAITS = (
    "Attempt 1 failed: Rate limit reached for requests. Please try again later.",
    "Suggested retry after 1s.. Retrying after 5427ms...",
)
GEMINI_EMPTY = dump("error", severity="error", message="The model returned an empty response with no text or thoughts.")


def gemini_fails(words: str, code: int) -> Said:
    why = json.dumps({"error": {"code": code, "message": words}})
    spoken = f"Error when talking to Gemini API _ApiError: {why}", "    at throwErrorIfNotOK (chunk.js:267833:24)", "}"
    return (*GEMINI_START, *spoken, dump("result", status="error", error={"message": f"[API Error: {why}]"}))


def goose(*parts: dict[str, object], role: str = "assistant", message: str = "m1", **metadata: object) -> str:
    return dump("message", message={"id": message, "role": role, "content": parts, "metadata": metadata})


def goose_says(text: str) -> str:
    return goose({"type": "text", "text": text})


GOOSE_DEED = (goose({"type": "toolRequest", "id": "c"}), goose({"type": "toolResponse"}, role="user", message="m0"))
GOOSE_TALK = (goose_says(SAID[:24]), goose_says(SAID[24:]))
GOOSE_ENDS = dump("complete", total_tokens=14611, input_tokens=14441, output_tokens=170)
GOOSE_SIGNED_OUT = "Ran into this error: Authentication error: Status: 401 Unauthorized. Response: Incorrect API key."
GOOSE_SPENT: dict[str, object] = {
    "type": "systemNotification", "notificationType": "creditsExhausted", "msg": "Please add more credits.",
}  # fmt: skip


def pi_says(text: str, reason: str = "stop", **more: object) -> str:
    used = {"input": 1423, "output": 27, "cost": {"input": 0.001423, "output": 0.000054, "total": 0.001477}}
    content = [{"type": "text", "text": text}] if text else []
    return dump(
        "message_end", message={"role": "assistant", "content": content, "usage": used, "stopReason": reason, **more}
    )


def pi_fails(words: str) -> Said:
    return (PI_START, pi_says("", "error", errorMessage=words), dump("agent_end", messages=[]))


PI_START = dump("session", version=3, id=ID, cwd="/work")
PI_DEED = (pi_says("", "toolUse"), dump("tool_execution_end", toolName="write", isError=False))
PI_AGAIN = dump("message_update", message={"role": "assistant", "stopReason": "error", "errorMessage": "429"})
PI_ENDS = dump("agent_end", messages=[])
PI_LIMIT = "429 Rate limit reached for requests."
PI_WAITS = dump("auto_retry_start", attempt=1, maxAttempts=3, delayMs=2000, errorMessage=PI_LIMIT)

# OpenCode, GitHub Copilot CLI, Aider and mini-swe-agent.


def opencode(kind: str, **fields: object) -> str:
    return dump(kind, sessionID=ID, **fields)


def opencode_fails(words: str, status: int | None = None, name: str = "APIError") -> str:
    return opencode("error", error={"name": name, "data": {"message": words, "statusCode": status}})


OPENCODE_DEED = opencode("tool_use", part={"tool": "bash", "state": {"status": "completed"}})
OPENCODE_TALK = opencode("text", part={"text": SAID})
OPENCODE_STEP = {"tokens": {"input": 100, "output": 20, "cache": {"read": 3000, "write": 0}}, "cost": 0.002}
OPENCODE_ENDS = opencode("step_finish", part={"reason": "stop", **OPENCODE_STEP})

OPENCODE_LOG = (
    'timestamp=2026-11-18T15:33:56.212Z level=ERROR run=3f23dfb8 message="stream error" providerID=fake modelID=fake-1 '
    'session.id=ses_1 small=false agent=build mode=primary error.error="AI_APICallError: Rate limit reached."'
)
COPILOT_RETRIES = dump("model.call_failure", data={"statusCode": 429, "failureKind": "api", "retryAttempt": 0})


def copilot_fails(error_type: str, status: int, words: str) -> Said:
    error = {"errorType": error_type, "statusCode": status, "message": words}
    return (dump("session.error", data=error), dump("result", sessionId=ID, exitCode=1))


COPILOT_DEED = (dump("tool.execution_start", data={}), dump("tool.execution_complete", data={"success": True}))
COPILOT_TALK = dump("assistant.message", data={"content": SAID})
COPILOT_ENDS = dump("result", sessionId=ID, exitCode=0)

AIDER_START = ("Aider v0.86.2", "Model: openai/fake-1 with diff edit format")
AIDER_ENDS = "Tokens: 2.8k sent, 1.1k cache hit, 38 received. Cost: $0.0031 message, $0.0031 session."
AIDER_DEED = ("Applied edit to made.txt", "Commit 1a2b3c4 feat: made")
AIDER_LIMIT = "litellm.RateLimitError: RateLimitError: OpenAIException - Rate limit reached for requests."
AIDER_SPENT = "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current quota"
AIDER_ADVICE = "The API provider has rate limited you. Try again later or check your quotas."
AIDER_WRAPPED = (
    "litellm.RateLimitError: RateLimitError: OpenAIException - You exceeded your current",
    "quota, please check your plan and billing details.",
)
AIDER_WAITS = (*AIDER_START, AIDER_LIMIT, "Retrying in 0.5 seconds...")


def mini_ends(exit_status: str, calls: int = 3, submission: str = "") -> str:
    stats = {"api_calls": calls, "instance_cost": 0.004}
    info = {"exit_status": exit_status, "submission": submission, "model_stats": stats}
    return dump("trajectory", info=info, input=900, output=80)


MINI_WAITS = "Retrying minisweagent.models.LitellmModel._query in 4.0 seconds as it raised RateLimitError: 429."
MINI_LACKS = "Retrying <unknown> in 4 seconds as it raised ModuleNotFoundError: No module named 'mcp'."

WORKED: dict[str, tuple[Said, Report]] = {
    "claude": (
        (CLAUDE_START, *CLAUDE_DEED, CLAUDE_TALK, CLAUDE_PAID),
        Report(DONE, SAID, ID, Usage(3210, 40, 12_300, 3000, 200)),
    ),
    "qwen": (
        (CLAUDE_START, *CLAUDE_DEED, CLAUDE_TALK, CLAUDE_ENDS),
        Report(DONE, SAID, ID, Usage(3210, 40, 0, 3000, 200)),
    ),
    "codex": ((*CODEX_START, CODEX_DEED, CODEX_TALK, CODEX_ENDS), Report(DONE, SAID, ID, Usage(25_274, 170))),
    "gemini": (
        (*GEMINI_START, *GEMINI_DEED, *GEMINI_TALK, GEMINI_ENDS),
        Report(DONE, SAID, ID, Usage(29_763, 175, 9366)),
    ),
    "goose": ((*GOOSE_DEED, *GOOSE_TALK, GOOSE_ENDS), Report(DONE, SAID, "", Usage(14_441, 170))),
    "pi": ((PI_START, *PI_DEED, PI_AGAIN, pi_says(SAID), PI_ENDS), Report(DONE, SAID, ID, Usage(2846, 54, 2954))),
    "opencode": (
        (OPENCODE_DEED, opencode("step_finish", part={"reason": "tool-calls"}), OPENCODE_TALK, OPENCODE_ENDS),
        Report(DONE, SAID, ID, Usage(3100, 20, 2000)),
    ),
    "copilot": ((*COPILOT_DEED, COPILOT_TALK, COPILOT_ENDS), Report(DONE, SAID, ID)),
    "aider": (
        (*AIDER_START, SAID, *AIDER_DEED, AIDER_ENDS),
        Report(DONE, SAID, "", Usage(2800, 38, 3100)),
    ),
    "mini": (
        ("mini-swe-agent (step 1, $0.00):", "ls", mini_ends("Submitted", submission=SAID)),
        Report(DONE, SAID, "", Usage(900, 80, 4000)),
    ),
}
# What is said, the exit code, and what that is. Whose run was ended has a word in place of the code.
FAULTS: list[tuple[str, Said, int | str, Outcome]] = [
    ("claude", (CLAUDE_START, claude_fails("API Error: 429 rate_limit_error", 429)), 1, LIMITED),
    ("claude", (CLAUDE_START, CLAUDE_WAITS), "limit", LIMITED),
    ("claude", (CLAUDE_START, claude_refused(1), claude_refused(2)), "limit", AUTH),
    (
        "claude",
        (CLAUDE_START, claude("system", "api_retry", attempt=1, error_status=None, error="unknown")),
        "wall",
        FAILED,
    ),
    ("claude", ("error: unknown option '--include-partial-messages'",), 1, SETUP),
    ("claude", (CLAUDE_START, claude_fails("Credit balance is too low", 402)), 1, QUOTA),
    ("claude", (CLAUDE_START, claude_fails("Claude AI usage limit reached|1760000000", 429)), 1, QUOTA),
    ("claude", (CLAUDE_START, claude_fails("Invalid API key · Please run /login", 401)), 1, AUTH),
    ("claude", (CLAUDE_START, claude_fails("Prompt is too long", 400, "prompt_too_long")), 1, CONTEXT),
    ("claude", (CLAUDE_START, claude_fails("API Error: Overloaded", 529)), 1, FAILED),
    ("claude", (CLAUDE_START, claude_fails("API Error: 400 unable to respond", 400)), 1, REFUSED),
    ("claude", (CLAUDE_START, CLAUDE_TALK, CLAUDE_PAID), 0, REFUSED),
    ("claude", (CLAUDE_START, claude("result", "success", is_error=False, result="")), 0, EMPTY),
    ("claude", (CLAUDE_START, *CLAUDE_DEED), 1, CRASHED),
    ("claude", (CLAUDE_START, *CLAUDE_DEED), -9, KILLED),
    ("claude", (CLAUDE_START, *CLAUDE_DEED, CLAUDE_TALK, CLAUDE_PAID), "wall", KILLED),
    ("qwen", (CLAUDE_START, QWEN_WAITS), "silence", LIMITED),
    ("qwen", (CLAUDE_START, qwen_fails("429 You exceeded your current quota")), 1, QUOTA),
    ("qwen", (CLAUDE_START, qwen_fails("401 Incorrect API key provided")), 1, AUTH),
    ("qwen", (CLAUDE_START, qwen_fails("400 This model's maximum context length is 128000 tokens")), 1, CONTEXT),
    ("qwen", (CLAUDE_START, qwen_fails("500 The server had an error")), 1, FAILED),
    ("qwen", (CLAUDE_START, CLAUDE_TALK, CLAUDE_ENDS), 0, REFUSED),
    ("qwen", (CLAUDE_START,), 1, CRASHED),
    ("qwen", (CLAUDE_START,), "killed", KILLED),
    ("codex", codex_fails(CODEX_LIMIT), 1, LIMITED),
    ("codex", (*CODEX_START, CODEX_WAITS), "limit", LIMITED),
    ("codex", codex_fails("Quota exceeded. Check your plan and billing details."), 1, QUOTA),
    ("codex", codex_fails("unexpected status 401 Unauthorized: Incorrect API key provided"), 1, AUTH),
    ("codex", codex_fails(CODEX_LONG), 1, CONTEXT),
    ("codex", codex_fails("Incomplete response returned, reason: max_output_tokens"), 1, CONTEXT),
    ("codex", codex_fails("Currently experiencing high demand, which may cause temporary errors."), 1, FAILED),
    ("codex", codex_fails("stream disconnected before completion: error sending request"), 1, FAILED),
    ("codex", (*CODEX_START, dump("error", message="Reconnecting... waiting for network")), "silence", FAILED),
    ("codex", codex_fails("The model `x` does not exist"), 1, REFUSED),
    ("codex", (*CODEX_START, CODEX_TALK, CODEX_ENDS), 0, REFUSED),
    ("codex", (*CODEX_START, dump("item.completed", item={"type": "agent_message", "text": ""}), CODEX_ENDS), 0, EMPTY),
    ("codex", CODEX_START, 1, CRASHED),
    ("codex", ("Error: No such file or directory",), 1, SETUP),
    ("codex", ("sh: 1: codex: not found",), 127, SETUP),
    ("codex", (*CODEX_START, CODEX_DEED, "sh: 2: its-wrapper: not found"), 127, SETUP),
    ("codex", (*CODEX_START, CODEX_DEED, CODEX_TALK, CODEX_ENDS, "sh: 2: after: not found"), 127, DONE),
    ("codex", codex_fails(CODEX_LIMIT), 127, LIMITED),
    ("codex", (), -9, KILLED),
    ("codex", CODEX_START, "silence", SILENT),
    ("codex", CODEX_START, "limit", SILENT),
    ("codex", (*CODEX_START, CODEX_BEGINS), "silence", KILLED),
    ("gemini", (*GEMINI_START, *GEMINI_WAITS), "limit", LIMITED),
    ("gemini", (*GEMINI_START, "Attempt 1 failed: You exceeded your current quota."), "limit", QUOTA),
    ("gemini", gemini_fails("Your credit balance is too low", 402), 146, QUOTA),
    ("gemini", gemini_fails("Incorrect API key provided", 401), 145, AUTH),
    ("gemini", gemini_fails("The input exceeds the maximum number of tokens allowed.", 400), 144, CONTEXT),
    ("gemini", (*GEMINI_START, "Attempt 4 failed with status 500. Retrying with backoff..."), "wall", FAILED),
    ("gemini", (*GEMINI_START, dump("result", status="error", error={"message": "terminated"})), 1, FAILED),
    ("gemini", gemini_fails("Invalid request", 400), 144, REFUSED),
    ("gemini", (*GEMINI_START, *GEMINI_TALK, GEMINI_ENDS), 0, REFUSED),
    ("gemini", (*GEMINI_START, GEMINI_EMPTY, dump("result", status="error", stats={})), 0, EMPTY),
    ("gemini", (*GEMINI_START, *GEMINI_TALK), 1, CRASHED),
    ("gemini", (*GEMINI_START, *GEMINI_TALK), "silence", SILENT),
    ("gemini", (*GEMINI_START, GEMINI_DEED[0]), "silence", KILLED),
    ("goose", (goose_says("Ran into this error: Rate limit exceeded: (scripted fault)."), GOOSE_ENDS), 0, LIMITED),
    ("goose", (goose_says("Ran into this error: Rate limit exceeded: your current quota"), GOOSE_ENDS), 0, QUOTA),
    ("goose", (goose(GOOSE_SPENT), GOOSE_ENDS), 0, QUOTA),
    ("goose", (dump("error", error=GOOSE_SIGNED_OUT), f"Error: {GOOSE_SIGNED_OUT}", "", "Please retry."), 1, AUTH),
    (
        "goose",
        (goose_says("Ran into this error trying to compact: exceeds the context window"), GOOSE_ENDS),
        0,
        CONTEXT,
    ),
    ("goose", (*GOOSE_TALK, goose(outputTokenLimitReached=True), GOOSE_ENDS), 0, CONTEXT),
    ("goose", (goose_says("Ran into this error: Server error (500 Internal Server Error)"), GOOSE_ENDS), 0, FAILED),
    ("goose", (*GOOSE_TALK, goose_says("Network error: Stream decode error"), GOOSE_ENDS), 0, FAILED),
    ("goose", (goose_says("Ran into this error: Request failed: Bad request (400)"), GOOSE_ENDS), 0, REFUSED),
    ("goose", (*GOOSE_TALK, GOOSE_ENDS), 0, REFUSED),
    ("goose", (goose_says("The model returned an empty response. Please resend."), GOOSE_ENDS), 0, EMPTY),
    ("goose", GOOSE_TALK, 1, CRASHED),
    ("goose", (), "silence", SILENT),
    ("pi", (*pi_fails(PI_LIMIT), PI_WAITS, dump("auto_retry_end", success=False, finalError=PI_LIMIT)), 0, LIMITED),
    ("pi", (*pi_fails(PI_LIMIT), PI_WAITS), "limit", LIMITED),
    ("pi", pi_fails("429 You exceeded your current quota, please check your plan"), 0, QUOTA),
    ("pi", pi_fails("401 Incorrect API key provided: test-key."), 0, AUTH),
    ("pi", pi_fails("400 This model's maximum context length is 128000 tokens."), 0, CONTEXT),
    ("pi", (PI_START, pi_says("This answer was cut", "length"), PI_ENDS), 0, CONTEXT),
    ("pi", pi_fails("Connection error."), 0, FAILED),
    ("pi", pi_fails("Provider finish_reason: content_filter"), 0, REFUSED),
    ("pi", (PI_START, pi_says(SAID), PI_ENDS), 0, REFUSED),
    ("pi", (PI_START, pi_says(""), PI_ENDS), 0, EMPTY),
    ("pi", (PI_START,), 1, CRASHED),
    ("pi", (PI_START,), -15, KILLED),
    ("opencode", (opencode_fails("Rate limit reached", 429),), 1, LIMITED),
    ("opencode", (opencode_fails("You exceeded your current quota", 429),), 1, QUOTA),
    ("opencode", (opencode_fails("Incorrect API key provided", 401),), 1, AUTH),
    ("opencode", (opencode_fails("too long", 400, "ContextOverflowError"),), 1, CONTEXT),
    ("opencode", (OPENCODE_TALK, opencode("step_finish", part={"reason": "length"})), 0, CONTEXT),
    ("opencode", (opencode_fails("Internal Server Error", 500),), 1, FAILED),
    ("opencode", (opencode_fails("Invalid request", 400),), 1, REFUSED),
    ("opencode", (OPENCODE_TALK, OPENCODE_ENDS), 0, REFUSED),
    ("opencode", (OPENCODE_ENDS,), 0, EMPTY),
    ("opencode", (OPENCODE_DEED, OPENCODE_TALK), 0, CRASHED),
    ("opencode", (OPENCODE_DEED,), -15, KILLED),
    ("copilot", copilot_fails("rate_limit", 429, "Rate limit reached"), 1, LIMITED),
    ("copilot", copilot_fails("quota", 402, "no quota left"), 1, QUOTA),
    ("copilot", copilot_fails("authentication", 401, "Incorrect API key"), 1, AUTH),
    ("copilot", copilot_fails("query", 400, "maximum context length is 128000 tokens"), 1, CONTEXT),
    ("copilot", copilot_fails("query", 500, "The server had an error"), 1, FAILED),
    ("copilot", copilot_fails("query", 400, "Invalid request"), 1, REFUSED),
    ("copilot", (dump("result", sessionId=ID, exitCode=1),), 1, REFUSED),
    ("copilot", (COPILOT_TALK, COPILOT_ENDS), 0, REFUSED),
    ("copilot", (COPILOT_ENDS,), 0, EMPTY),
    ("copilot", (*COPILOT_DEED, COPILOT_TALK), 1, CRASHED),
    ("copilot", COPILOT_DEED, "killed", KILLED),
    ("aider", AIDER_WAITS, 0, LIMITED),
    ("aider", AIDER_WAITS, "limit", LIMITED),
    ("aider", (*AIDER_START, AIDER_SPENT), 0, QUOTA),
    ("aider", (*AIDER_START, "litellm.AuthenticationError: Incorrect API key provided"), 0, AUTH),
    ("aider", (*AIDER_START, "Model openai/fake-1 has hit a token limit!"), 0, CONTEXT),
    ("aider", (*AIDER_START, "litellm.InternalServerError: OpenAIException"), 0, FAILED),
    ("aider", (*AIDER_START, "litellm.BadRequestError: Invalid request"), 0, REFUSED),
    ("aider", (*AIDER_START, SAID, AIDER_ENDS), 0, REFUSED),
    ("aider", AIDER_START, 1, CRASHED),
    ("aider", AIDER_START, -15, KILLED),
    ("aider", (*AIDER_START, AIDER_LIMIT, AIDER_ADVICE, "Retrying in 0.2 seconds..."), "limit", LIMITED),
    ("aider", (*AIDER_START, *AIDER_WRAPPED, AIDER_ADVICE, "Retrying in 0.2 seconds..."), "limit", QUOTA),
    ("aider", (*AIDER_START, "Empty response received from LLM.", "Tokens: 10 sent, 0 received."), 0, EMPTY),
    ("aider", ("aider: error: unrecognized arguments: --frobnicate",), 2, SETUP),
    ("opencode", (OPENCODE_LOG,), "limit", LIMITED),
    ("copilot", (COPILOT_RETRIES,), "limit", LIMITED),
    ("mini", (MINI_WAITS,), "silence", LIMITED),
    ("mini", ("litellm.AuthenticationError: no", mini_ends("AuthenticationError", 1)), 1, AUTH),
    ("mini", (mini_ends("PermissionDeniedError", 1),), 1, AUTH),
    ("mini", (mini_ends("ContextWindowExceededError"),), 1, CONTEXT),
    ("mini", (mini_ends("InternalServerError"),), 1, FAILED),
    ("mini", (mini_ends("ServiceUnavailableError"),), 1, FAILED),
    ("mini", (mini_ends("LimitsExceeded"),), 0, CRASHED),
    ("mini", ("TypeError: 'NoneType' object is not iterable", mini_ends("TypeError")), 0, CRASHED),
    ("mini", ("litellm.BadRequestError: 400 no such thing", mini_ends("BadRequestError")), 0, REFUSED),
    ("mini", (MINI_LACKS,), "limit", SETUP),
    ("mini", ("Traceback (most recent call last):", "ModuleNotFoundError: No module named 'mcp'"), 1, SETUP),
    ("mini", (mini_ends("Submitted", 1, SAID),), 0, REFUSED),
    ("mini", (mini_ends("Submitted", 1),), 0, EMPTY),
    ("mini", ("mini-swe-agent (step 1, $0.00):", mini_ends("")), 0, CRASHED),
    ("mini", (MINI_WAITS, "mini-swe-agent (step 1, $0.00):"), "killed", KILLED),
]


@pytest.mark.parametrize("program", PRESETS)
def test_a_session_that_did_its_work_is_done_with_its_id_and_what_it_used(program: str) -> None:
    said, report = WORKED[program]
    assert read(program, *said) == report


@pytest.mark.parametrize(("program", "said", "end", "outcome"), FAULTS, ids=[f"{f[0]}-{f[3]}-{f[2]}" for f in FAULTS])
def test_every_way_to_fail_is_told_by_the_programs_own_words(
    program: str, said: Said, end: int | str, outcome: Outcome
) -> None:
    report = read(program, *said, status=end) if isinstance(end, int) else read(program, *said, status=None, by=end)
    assert report.outcome is outcome


@pytest.mark.parametrize("status", [126, 127])
@pytest.mark.parametrize("by", ["exit", "could-not-start"])
@pytest.mark.parametrize(
    "runner",
    [*PRESETS.values(), *(Runner(sign, "./mine", signs={sign: "x!"}) for sign in ("done", "quota"))],
    ids=lambda runner: runner.name,
)
def test_a_program_that_a_shell_cannot_start_is_set_up_wrong_with_its_last_words(
    runner: Runner, by: str, status: int
) -> None:
    reader = feed(make_reader(runner), [b"sh: 1: mine: not found\n"])
    report = reader.report(status, by, must_act=True)
    assert (report.outcome, report.words) == (SETUP, "sh: 1: mine: not found")


def test_what_a_machine_had_no_means_to_start_is_not_set_up_wrong() -> None:
    assert read("claude", status=75, by="could-not-start").outcome is KILLED


def test_a_command_that_said_what_is_wrong_or_that_it_is_done_is_believed_whatever_its_exit_code() -> None:
    runner = Runner("mine", "./mine", signs={"done": "d!", "quota": "q!"})
    assert feed(make_reader(runner), [b"d!\n"]).report(127, "exit", must_act=True).outcome is DONE
    assert feed(make_reader(runner), [b"q!\n"]).report(127, "exit", must_act=True).outcome is QUOTA


@pytest.mark.parametrize(
    ("program", "waits", "after_s"),
    [
        ("claude", (CLAUDE_START, CLAUDE_WAITS), 0.587),
        ("qwen", (CLAUDE_START, QWEN_WAITS), 60.0),
        ("codex", (*CODEX_START, CODEX_WAITS), None),
        ("gemini", (*GEMINI_START, *GEMINI_WAITS), 5.427),
        ("pi", (PI_START, PI_WAITS), 2.0),
        ("aider", AIDER_WAITS, 0.5),
        ("mini", (MINI_WAITS,), None),
    ],
)
def test_a_limit_that_a_program_waits_for_is_over_when_the_model_answers(
    program: str, waits: Said, after_s: float | None
) -> None:
    waiting = listen(program, waits)
    assert waiting.limited is not None
    assert (waiting.limited.outcome, waiting.limited.retry_s) == (LIMITED, after_s)
    worked, report = WORKED[program]
    assert listen(program, (*waits, *worked)).limited is None
    assert read(program, *waits, *worked).outcome is report.outcome


def test_parts_of_one_message_are_counted_once_while_a_session_runs() -> None:
    parts = (claude_says("m1", 9, type="text", text="I look."), *CLAUDE_DEED, CLAUDE_TALK)
    assert listen("claude", parts).usage == Usage(21, 2)


def test_when_to_try_again_is_reported_as_it_was_said() -> None:
    report = read("claude", claude_fails("Claude AI usage limit reached|1760000000", 429))
    assert (report.retry_s, report.retry_epoch) == (None, 1_760_000_000.0)


def test_how_a_run_ended_that_nobody_knows_of_counts_as_killed() -> None:
    assert read("goose", *WORKED["goose"][0], status=None, by=None).outcome is KILLED


def test_who_need_not_act_is_done_when_it_has_answered() -> None:
    assert listen("codex", (*CODEX_START, CODEX_TALK, CODEX_ENDS)).report(0, "exit", must_act=False).outcome is DONE


@pytest.mark.parametrize(
    ("signs", "said", "status", "outcome"),
    [
        ({}, "anything, also error 429", 0, DONE),
        ({}, "", 3, CRASHED),
        ({"done": "^ready$"}, "ready", 1, DONE),
        ({"done": "^ready$"}, "not ready", 0, CRASHED),
        ({"rate-limited": "slow down", "done": "^ready$"}, "slow down, retry after 9 s", 0, LIMITED),
        ({"rate-limited": "slow down", "done": "^ready$"}, "slow down\nready", 0, DONE),
    ],
)
def test_any_other_command_is_told_by_its_signs_and_else_by_its_exit_code(
    signs: dict[str, str], said: str, status: int, outcome: Outcome
) -> None:
    reader = feed(make_reader(Runner("mine", "./mine", signs={**signs, "session": "session=(.*)"})), [said.encode()])
    reader.take(b"session=s-1")
    report = reader.report(status, "exit", must_act=True)
    assert (report.outcome, report.session) == (outcome, "s-1")


ALL_SAID = sorted({line for said in (*(w[0] for w in WORKED.values()), *(f[1] for f in FAULTS)) for line in said})
ALL_TEXTS = [line for line in ALL_SAID if not line.startswith("{")]
ALL_EVENTS = [json.loads(line) for line in ALL_SAID if line.startswith("{")]
KINDS = sorted({event["type"] for event in ALL_EVENTS})
JSON_PROGRAMS = [name for name in PRESETS if name != "aider"]
NOISE: tuple[str | bytes, ...] = (
    *("", "   ", "Warning: no 256 colors", "\x1b[31m12:00 INFO ready\x1b[0m", "{", "}", "[1]", "null", "7"),
    *('{"type":"unheard of"}', '{"type":', '{"a": 1} {"b": 2}', '{"type": {"x": NaN}}', b"\xff\xfe{\x00", b"{\xff"),
)


@pytest.mark.parametrize("program", JSON_PROGRAMS)
def test_banners_logs_and_broken_lines_in_between_change_nothing(program: str) -> None:
    said, report = WORKED[program]
    assert read(program, *NOISE, *(line for each in said for line in (each, *NOISE))) == report


@pytest.mark.parametrize("program", JSON_PROGRAMS)
def test_a_torn_last_line_is_left_out(program: str) -> None:
    said, report = WORKED[program]
    assert read(program, *said, said[-1][: len(said[-1]) // 2]) == report
    assert read(program, *said[:-1], said[-1][:-1]).outcome is CRASHED


ABSURD: tuple[object, ...] = (
    *(None, True, 0, -1, 5, 1.5, 1e308, 10**400, float("nan"), float("inf"), float("-inf"), "", "x" * 9000, "\ud800"),
    *([], [[["x"]]], [None, 7], {}, {"type": []}, {"a": {"b": [1]}}),
)


def spoil(value: object) -> Iterator[object]:
    """Put something absurd in each place of a JSON value, one after the other."""
    yield from ABSURD
    places = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for place, inner in list(places):
        for other in spoil(inner):
            copy: Any = value.copy() if isinstance(value, dict | list) else value
            copy[place] = other
            yield copy


def check(report: Report) -> None:
    assert isinstance(report, Report)
    assert min(report.usage.tokens_in, report.usage.tokens_out, report.usage.microusd) >= 0
    assert len(report.words.encode()) <= 4 * MAX_LAST_WORDS  # what cannot be encoded cannot be stored


@pytest.mark.parametrize("program", JSON_PROGRAMS)
def test_whatever_stands_in_a_field_there_is_a_report(program: str) -> None:
    lines = {line for said in (WORKED[program][0], *(f[1] for f in FAULTS if f[0] == program)) for line in said}
    for event in (json.loads(line) for line in sorted(lines) if line.startswith("{")):
        for spoilt in spoil(event):
            check(read(program, json.dumps(spoilt)))


def find_deepest(opening: str, closing: str) -> int:
    """Find how deep JSON may be that can just be read from here."""
    for deep in range(1000, 0, -1):
        try:
            json.loads(opening * deep + closing * deep)
        except RecursionError:
            continue
        return deep
    raise AssertionError


@pytest.mark.parametrize("program", PRESETS)
def test_deep_nesting_is_left_out(program: str) -> None:
    deepest = find_deepest("[", "]")  # what can just be read cannot be written any more
    for deep in (100_000, *range(deepest - 15, deepest + 2)):
        value = "[" * deep + "]" * deep
        check(read(program, value, "[" * deep, '{"a":' * deep, f'{{"type":"result","exitCode":{value}}}'))
        for kind in KINDS if deep < 1000 else ():
            check(read(program, *(f'{{"type":"{kind}","{key}":{value}}}' for key in ("message", "id", "thread_id"))))


@pytest.mark.parametrize("program", ["gemini", "aider", "mini"])
def test_numbers_in_plain_words_may_be_absurd(program: str) -> None:
    for number in ("9" * 5000, "9" * 400, "1.2.3", ".", "\u0663"):
        check(read(program, f"Tokens: {number}k sent, {number} received. Cost: ${number} message"))
        check(read(program, f"Attempt 1 failed with status {number}", f"429 Retrying after {number}ms"))
        check(read(program, "Attempt 1 failed with status 429.", f"Retrying after {number}ms", f"in {number} s"))


@pytest.mark.timeout(30)
@pytest.mark.parametrize("word", ["a", "Retrying ", "retry in 1", "retry after 1 ", "Tokens: 1 ", "error: "])
def test_one_long_line_of_words_takes_little_time(word: str) -> None:
    for program in PRESETS:
        check(read(program, word * (1_000_000 // len(word))))


def find_words(value: object) -> Iterator[str]:
    """Find every key and every text in a JSON value."""
    if isinstance(value, str):
        yield value
    for inner in (*value, *value.values()) if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from find_words(inner)


WORDS = st.sampled_from(sorted({word for event in ALL_EVENTS for word in find_words(event)}))
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | WORDS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(WORDS | st.text(), inner, max_size=6),
    max_leaves=12,
)
FIELDS = st.dictionaries(WORDS, VALUES, max_size=8)
EVENTS = st.builds(lambda kind, rest: json.dumps({**rest, "type": kind}), st.sampled_from(KINDS), FIELDS)
PIECES = st.sampled_from([*(piece for line in ALL_TEXTS for piece in line.split()), "", ".", "9" * 30])
TEXTS = st.lists(PIECES | st.text(), max_size=12).map(" ".join)
SIGNED = Runner("mine", "./mine", signs={"session": "s(.*)", "done": "d", "quota": "q", "rate-limited": "[0-9]"})
ENDS = ((0, "exit"), (1, "exit"), (-9, "exit"), (None, "killed"), (None, "silence"), (None, "wall"), (None, None))


@settings(max_examples=150)
@given(
    said=st.lists((EVENTS | TEXTS | st.sampled_from(ALL_SAID)).map(str.encode) | st.binary(), max_size=12),
    end=st.sampled_from(ENDS),
    cut=st.integers(1, 400),
)
def test_whatever_is_said_there_is_a_report(said: list[bytes], end: tuple[int | None, str | None], cut: int) -> None:
    whole = b"\n".join(said)
    chunks = [whole[at : at + cut] for at in range(0, len(whole), cut)]
    for runner in (*PRESETS.values(), SIGNED):
        reader = feed(make_reader(runner), chunks)
        check(reader.report(*end, must_act=True))
        check(reader.report(*end, must_act=False))


CHUNK = 1 << 20


def make_stream(megabytes: int) -> Iterator[bytes]:
    """Make a long session, in which one line is half of all."""
    yield "\n".join((*CODEX_START, "")).encode()
    output = {"type": "command_execution", "aggregated_output": "x" * 8000}
    piece = f"{dump('item.completed', item=output)}\n".encode()
    chunk = piece * (CHUNK // len(piece))
    yield from (chunk for _ in range(megabytes // 2))
    yield b'{"type":"turn.failed","error":"'
    yield from (b"y" * CHUNK for _ in range(megabytes // 2))
    yield f"\n{CODEX_TALK}\n{CODEX_ENDS}".encode()


def test_a_stream_of_100_megabytes_is_read_in_bounded_memory_and_its_longest_line_left_out() -> None:
    tracemalloc.start()
    try:
        report = feed(make_reader(PRESETS["codex"]), make_stream(100)).report(0, "exit", must_act=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert report == WORKED["codex"][1]
    assert peak < 40 << 20


def test_an_answer_without_an_end_is_kept_by_its_last_words() -> None:
    more = dump("message", role="assistant", content="z" * 10_000, delta=True)
    reader = listen("gemini", (*GEMINI_START, *[more] * 50, *GEMINI_TALK, GEMINI_ENDS))
    assert len(reader.said) == MAX_SAID
    words = reader.report(0, "exit", must_act=False).words
    assert words.endswith(SAID)
    assert len(words) == MAX_LAST_WORDS


@pytest.mark.parametrize("size", [1, 7, 64, 10_000])
def test_lines_are_the_same_however_a_stream_is_cut(size: int) -> None:
    whole = "\n".join(WORKED["pi"][0]).encode()
    chunks = (whole[at : at + size] for at in range(0, len(whole), size))
    assert feed(make_reader(PRESETS["pi"]), chunks).report(0, "exit", must_act=True) == WORKED["pi"][1]


@pytest.mark.parametrize(
    ("words", "seconds"),
    [
        ("retry after 3600 seconds", 3600.0),
        ("Please try again in 5h 3m", 18_180.0),
        ("Please try again in 6m0s", 360.0),
        ("Please try again in 1h2m3.5s.", 3723.5),
        ("try again in 2 days, 1 hour", 176_400.0),
        ("Retry-After: 17", 17.0),
        ("retry after: 5 minutes", 300.0),
        ("Suggested retry after 1s", 1.0),
        ("Retrying after 5078ms", 5.078),
        ("Retrying in 0.2 seconds...", 0.2),
        ('"retryDelay": "7s"', 7.0),
        ("retry_after=250 MS", 0.25),
        ("try again in 5 \u017f", 5.0),
        ("try again in 400 days", MAX_RETRY_S),
        (f"Retry-After: {'9' * 400}", MAX_RETRY_S),
        ("Claude AI usage limit reached|1760000000", None),
        ("Please try again later.", None),
        ("It took 5 s.", None),
        ("", None),
    ],
)
def test_after_how_long_to_try_again_is_found_in_a_sentence(words: str, seconds: float | None) -> None:
    assert find_retry_s(words) == pytest.approx(seconds)
    assert read_sign(words).retry_s == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("words", "status", "outcome"),
    [
        ("rate_limit", 429, LIMITED),
        ("You exceeded your current quota", 429, QUOTA),
        ("maximum context length", 400, CONTEXT),
        ("no such thing", 400, REFUSED),
        ("quota service is down", 503, FAILED),
        ("", 402, QUOTA),
        ("", 403, AUTH),
        ("Overloaded", None, FAILED),
        ("Overloaded", "429", FAILED),
        ("Too Many Requests", 200, LIMITED),
        ("I would rather not", True, REFUSED),
        ("", None, REFUSED),
    ],
)
def test_an_error_means_what_its_status_says_and_its_words(words: str, status: object, outcome: Outcome) -> None:
    assert read_sign(words, status).outcome is outcome


def test_an_epoch_is_when_to_try_again_and_long_words_are_cut() -> None:
    sign = read_sign(f"Claude AI usage limit reached|1760000000 {'and so on ' * 100}")
    assert (sign.outcome, sign.epoch, len(sign.words)) == (QUOTA, 1_760_000_000.0, MAX_WORDS)


def test_claude_that_is_not_signed_in_is_given_up_at_its_second_refusal() -> None:
    assert not listen("claude", (CLAUDE_START, claude_refused(1))).hopeless
    assert listen("claude", (CLAUDE_START, claude_refused(1), claude_refused(2))).hopeless


def test_a_module_that_is_missing_is_given_up_at_once_and_named() -> None:
    reader = listen("mini", (MINI_LACKS,))
    assert reader.hopeless
    assert "No module named 'mcp'" in reader.report(None, "limit", must_act=True).words


def test_a_program_that_could_not_start_is_told_with_its_last_lines() -> None:
    report = read("gemini", "Loading", "Error: settings.json is no JSON", "  at line 3", status=1)
    assert report.words == "Loading\nError: settings.json is no JSON\n  at line 3"


@pytest.mark.parametrize(
    ("program", "asks", "works"),
    [
        ("claude", (CLAUDE_START,), (*CLAUDE_DEED[:1],)),
        ("qwen", (CLAUDE_START, *CLAUDE_DEED), (*CLAUDE_DEED[:1],)),
        ("codex", CODEX_START, (CODEX_BEGINS,)),
        ("gemini", GEMINI_START, (GEMINI_DEED[0],)),
        ("goose", GOOSE_DEED, GOOSE_DEED[:1]),
        ("pi", (PI_START,), (dump("tool_execution_start", toolName="bash"),)),
        ("opencode", (), (opencode("step_start", part={}),)),
        ("copilot", COPILOT_DEED, COPILOT_DEED[:1]),
        ("mini", ("User:",), ("mini-swe-agent (step 1, $0.00):",)),
    ],
)
def test_who_waits_for_the_model_is_told_from_who_waits_for_a_tool(program: str, asks: Said, works: Said) -> None:
    assert listen(program, asks).awaits_model
    assert not listen(program, (*asks, *works)).awaits_model
