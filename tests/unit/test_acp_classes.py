"""What each answer over the Agent Client Protocol means: a case for every sign, and words that are no sign."""

import pytest

from hivekeeper.domain.report import Outcome
from hivekeeper.runners import acp_classes
from hivekeeper.runners.acp_classes import Answer, Remedy, Row, classify

AUTH, QUOTA, LIMITED, CONTEXT = Outcome.AUTH, Outcome.QUOTA, Outcome.RATE_LIMITED, Outcome.CONTEXT_LIMIT
FAILED, EMPTY, REFUSED, DONE = Outcome.SERVER_ERROR, Outcome.EMPTY, Outcome.REFUSED, Outcome.DONE
CRASHED, KILLED = Outcome.CRASHED, Outcome.KILLED
GOOSE = "Ran into this error: {}\n\nPlease retry if you think this is a transient or recoverable error."
CASES: list[tuple[Answer, Outcome]] = [
    # The connection and the turn.
    (Answer(closed=True), CRASHED),
    (Answer(closed=True, cancelled=True), KILLED),
    (Answer(cancelled=True, stop="cancelled"), KILLED),
    (Answer(cancelled=True, stop="end_turn", text="Done.", acted=True), KILLED),
    # Not signed in.
    (Answer(-32000, "Authentication required"), AUTH),
    (Answer(401, "API key not valid"), AUTH),
    (Answer(403, "forbidden"), AUTH),
    (Answer(-32603, "Internal error", {"details": "401 Incorrect API key provided"}), AUTH),
    (Answer(-32603, "AuthenticationError"), AUTH),
    (Answer(-32603, "Internal error: Authentication failed"), AUTH),
    (Answer(stop="end_turn", text="Missing environment variable: `OPENAI_API_KEY`"), AUTH),
    (Answer(stop="end_turn", text=GOOSE.format("Authentication error: Status: 401 Unauthorized")), AUTH),
    (Answer(stop="end_turn", text="unexpected status 403 Forbidden: Permission denied"), AUTH),
    # A spent quota, which comes with the status of a rate limit.
    (Answer(402, "Payment required"), QUOTA),
    (Answer(-32603, "Internal error", {"codexErrorInfo": "usageLimitExceeded"}), QUOTA),
    (Answer(429, "You exceeded your current quota"), QUOTA),
    (Answer(-32603, "429 check your billing details"), QUOTA),
    (Answer(-32603, "insufficient_quota"), QUOTA),
    (Answer(-32603, "402 from the service"), QUOTA),
    (Answer(stop="end_turn", text=GOOSE.format("Rate limit exceeded: You exceeded your current quota")), QUOTA),
    # Rate limits.
    (Answer(429, "Resource exhausted"), LIMITED),
    (Answer(-32603, "Internal error", {"errorKind": "rate_limit"}), LIMITED),
    (Answer(-32603, "429 Too Many Requests"), LIMITED),
    (Answer(-32603, "Rate limit reached for requests"), LIMITED),
    (Answer(stop="end_turn", text="exceeded retry limit, last status: 429 Too Many Requests"), LIMITED),
    (Answer(stop="end_turn", text=GOOSE.format("Rate limit exceeded: Please try again later.")), LIMITED),
    (Answer(stop="end_turn", text="I begin.\nError: the service says 429", acted=True), LIMITED),
    # A conversation that grew too long.
    (Answer(-32603, "Internal error", {"errorName": "ContextOverflowError"}), CONTEXT),
    (Answer(-32603, "litellm.ContextWindowExceededError"), CONTEXT),
    (Answer(-32603, "context_length_exceeded"), CONTEXT),
    (Answer(-32603, "Prompt is too long"), CONTEXT),
    (Answer(400, "This model's maximum context length is 128000 tokens"), CONTEXT),
    (Answer(stop="end_turn", text=GOOSE.format("Context limit: no usable context left")), CONTEXT),
    (Answer(-32603, "input exceeds the maximum number of tokens allowed"), CONTEXT),
    # A cut answer.
    (Answer(-32603, "Internal error", {"errorKind": "max_output_tokens"}), CONTEXT),
    (Answer(stop="max_tokens", text="I will now"), CONTEXT),
    (Answer(stop="end_turn", text="Incomplete response returned, reason: max_output_tokens"), CONTEXT),
    (Answer(-32603, "the output token limit was reached"), CONTEXT),
    # A failing service.
    (Answer(500, "Internal"), FAILED),
    (Answer(503, "try later"), FAILED),
    (Answer(-32603, "Internal error", {"errorKind": "server_error"}), FAILED),
    (Answer(-32603, "Internal error", {"errorKind": "overloaded"}), FAILED),
    (Answer(-32603, "502 Bad Gateway"), FAILED),
    (Answer(-32603, "the model is overloaded"), FAILED),
    (Answer(stop="end_turn", text="Currently experiencing high demand, which may cause temporary errors."), FAILED),
    (Answer(stop="end_turn", text="We\u2019re currently experiencing high demand, which may pass."), FAILED),
    (Answer(stop="end_turn", text="Working on it\n\nNetwork error: Stream decode error"), FAILED),
    (Answer(stop="end_turn", text=GOOSE.format("Server error: Server error (500 Internal Server Error)")), FAILED),
    (Answer(stop="end_turn", text="Retrying (attempt 3/3, waiting 8s)\nRetry finished, resuming.\n"), FAILED),
    (Answer(stop="end_turn", text="Retrying (attempt 1/3, waiting 2s)"), FAILED),
    (Answer(-32603, "something nobody has seen before"), FAILED),
    (Answer(-32602, "Invalid params", "session already has active run"), FAILED),
    # Nothing came.
    (Answer(-32603, "the model gave an empty response"), EMPTY),
    (Answer(stop="end_turn", text="The model returned an empty response"), EMPTY),
    (Answer(stop="end_turn", text="Error: No response was returned by the model"), EMPTY),
    (Answer(stop="max_turn_requests", text="again", acted=True), EMPTY),
    (Answer(stop="cancelled", text="again"), EMPTY),
    (Answer(stop="end_turn"), EMPTY),
    (Answer(stop="end_turn", text="Warning: Model metadata for `x` not found.\n\n"), EMPTY),
    (Answer(stop="refusal"), REFUSED),
    # It says that it is done, whatever it writes about.
    (Answer(stop="end_turn", text="Done.", acted=True), DONE),
    (Answer(stop="end_turn", acted=True), DONE),
    (Answer(stop="end_turn", text="The client now retries after a 429 and honours the rate limit.", acted=True), DONE),
    (Answer(stop="end_turn", text="I raised the quota to 500 and fixed the 401 page.", acted=True), DONE),
    (Answer(stop="end_turn", text="Retrying (attempt 1/3)\nRetry finished, resuming.\nAll done.", acted=True), DONE),
    (Answer(stop="end_turn", text="Warning: Model metadata for `x` not found.\nMade it.", acted=True), DONE),
]


@pytest.mark.parametrize(("answer", "outcome"), CASES)
def test_every_sign_has_its_class(answer: Answer, outcome: Outcome) -> None:
    assert classify(answer).outcome is outcome


@pytest.mark.parametrize("row", acp_classes.TABLE, ids=lambda row: f"{row.outcome}-{row.words[:20]}")
def test_a_row_that_was_missing_would_be_missed(row: Row, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = [classify(answer) for answer, _ in CASES]
    monkeypatch.setattr(acp_classes, "TABLE", tuple(each for each in acp_classes.TABLE if each is not row))
    assert [classify(answer) for answer, _ in CASES] != whole


@pytest.mark.parametrize(
    ("answer", "remedy"),
    [
        (Answer(stop="max_tokens", text="I will"), Remedy.CONTINUE),
        (Answer(stop="end_turn"), Remedy.CONTINUE),
        (Answer(-32602, "Invalid params", "already has active run"), Remedy.RELOAD),
        (Answer(429, "slow down"), Remedy.NONE),
        (Answer(stop="end_turn", text="Done.", acted=True), Remedy.NONE),
    ],
)
def test_what_may_be_tried_once_more_is_said(answer: Answer, remedy: Remedy) -> None:
    assert classify(answer).remedy is remedy


def test_the_time_to_wait_is_read_from_the_words() -> None:
    assert classify(Answer(429, "Rate limit reached, retry after 7s")).retry_s == 7.0


def test_data_that_cannot_be_read_does_not_hide_the_message() -> None:
    assert classify(Answer(-32603, "401 no", {"a": {1, 2}})).outcome is AUTH
