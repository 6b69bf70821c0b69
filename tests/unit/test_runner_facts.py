"""What is known of programs and models from outside: what tokens cost, which model it is, which version."""

import json
from pathlib import Path

import pytest

from hivekeeper.config.settings import load_settings
from hivekeeper.domain.price import Price, Prices
from hivekeeper.domain.report import Usage
from hivekeeper.domain.runner import Runner
from hivekeeper.runners import PRESETS, make_reader
from hivekeeper.runners.prices import PRICES
from hivekeeper.views.runners import find_version

SONNET = "claude-sonnet-4-5-20250929"


@pytest.mark.parametrize(
    ("model", "known"),
    [
        (SONNET, "claude-sonnet"),
        ("us.anthropic.claude-sonnet-4-5-20250929-v1:0", "claude-sonnet"),
        ("claude-opus-4-1-20250805", "claude-opus-4-1"),
        ("claude-opus-4-7", "claude-opus"),
        ("openai/gpt-5-mini-2025-08-07", "gpt-5-mini"),
        ("GPT-5", "gpt-5"),
    ],
)
def test_a_model_has_the_price_of_the_longest_name_it_begins_with(model: str, known: str) -> None:
    assert Prices(PRICES).find(model) == PRICES[known]


@pytest.mark.parametrize("model", ["", "fake-1", "gpt-51", "gpt-5.9", "my-claude-opus"])
def test_a_model_that_nobody_has_a_price_for_costs_nothing_that_is_known(model: str) -> None:
    assert Prices(PRICES).find(model) is None
    assert Prices(PRICES).add_cost(model, Usage(1000, 10)) == Usage(1000, 10)


def test_what_was_read_from_the_cache_costs_less_and_money_that_a_program_tells_stands() -> None:
    prices = Prices({"m": Price(3.0, 15.0, 0.3, 3.75)})
    assert prices.add_cost("m", Usage(1000, 100, 0, 600, 300)).microusd == round(
        100 * 3 + 600 * 0.3 + 300 * 3.75 + 1500
    )
    assert prices.add_cost("m", Usage(1000, 100, 7)).microusd == 7
    assert Prices({}, Price(1.0, 2.0)).add_cost("any", Usage(10, 10, 0, 10)).microusd == 30, "a runner's own price"


def test_prices_of_hive_toml_come_before_those_shipped(tmp_path: Path) -> None:
    toml = '[prices]\nmine = {input = 1, output = 2}\n"claude-sonnet" = {input = 9, output = 9}\n'
    (tmp_path / "hive.toml").write_text(f"{toml}[runners.codex]\nprice = {{input = 4, output = 5}}\n")
    settings = load_settings(tmp_path)
    assert settings.prices["mine"] == Price(1, 2)
    assert settings.prices["claude-sonnet"] == Price(9, 9)
    assert settings.prices["gpt-5"] == PRICES["gpt-5"]
    assert settings.runners["codex"].price == Price(4, 5)


@pytest.mark.parametrize(
    ("args", "environment", "model"),
    [
        ("--model 'a b' -m c", {}, "a b"),
        ("--model=x", {"GOOSE_MODEL": "y"}, "x"),
        ("", {"GOOSE_MODEL": "y"}, "y"),
        ("--verbose", {}, ""),
    ],
)
def test_the_model_is_found_on_the_command_line_or_in_the_environment(
    args: str, environment: dict[str, str], model: str
) -> None:
    assert Runner("r", "prog", args=args, inherit=("GOOSE_MODEL", "KEY")).find_model(environment) == model


def start(message: str, model: str, sent: int, whose: str | None = None, **cached: int) -> str:
    usage = {"input_tokens": sent, "output_tokens": 1, **cached}
    begun = {"type": "message_start", "message": {"id": message, "model": model, "usage": usage}}
    return json.dumps({"type": "stream_event", "event": begun, "parent_tool_use_id": whose})


def end(received: int, whose: str | None = None) -> str:
    ended = {"type": "message_delta", "delta": {}, "usage": {"output_tokens": received}}
    return json.dumps({"type": "stream_event", "event": ended, "parent_tool_use_id": whose})


def count(program: str, *said: str) -> Usage:
    reader = make_reader(PRESETS[program])
    for line in said:
        reader.take(line.encode())
    return reader.count()


def test_claude_is_charged_for_each_message_as_it_comes_and_for_its_own_workers_by_their_model() -> None:
    said = (
        start("m1", SONNET, 1000, cache_read_input_tokens=9000),
        start("m2", "claude-haiku-4-5", 500, "toolu_1"),
        end(100),
        end(40, "toolu_1"),
    )
    sonnet, haiku = round(1000 * 3 + 9000 * 0.3 + 100 * 15), 500 + 40 * 5
    assert count("claude", *said) == Usage(10_500, 140, sonnet + haiku, 9000)
    whole = {"type": "assistant", "message": {"id": "m1", "model": SONNET, "usage": {"input_tokens": 1000}}}
    assert count("claude", *said, json.dumps(whole)) == count("claude", *said), "what is told again costs nothing more"


def test_a_session_of_claude_that_is_cut_off_costs_what_its_last_message_was_sent() -> None:
    assert count("claude", start("m1", SONNET, 1000)) == Usage(1000, 1, 3015)


def test_claudes_own_sum_has_the_last_word_on_money() -> None:
    usage = {"input_tokens": 1000, "output_tokens": 100}
    result = {"type": "result", "subtype": "success", "result": "x", "usage": usage, "total_cost_usd": 0.5}
    assert count("claude", start("m1", SONNET, 1000), end(100), json.dumps(result)) == Usage(1000, 100, 500_000)


def test_qwen_tells_of_one_session_as_it_goes_and_of_the_whole_conversation_at_its_end() -> None:
    reader = make_reader(PRESETS["qwen"])
    message = {"id": "m1", "model": "fake", "content": [], "usage": {"input_tokens": 5000, "output_tokens": 120}}
    reader.take(json.dumps({"type": "assistant", "message": message}).encode())
    assert (reader.usage, reader.tells_totals) == (Usage(5000, 120), False)
    usage = {"input_tokens": 45_931, "output_tokens": 657}
    reader.take(json.dumps({"type": "result", "subtype": "success", "result": "x", "usage": usage}).encode())
    assert (reader.usage, reader.tells_totals) == (Usage(45_931, 657), True)


@pytest.mark.parametrize(
    ("said", "version"),
    [
        ("GitHub Copilot CLI 1.0.102.\nRun 'copilot update' to check for updates.\n", "GitHub Copilot CLI 1.0.102."),
        ("Warning: no terminal\n\n 1.52.0\n", "1.52.0"),
        ("unknown\n", "unknown"),
        ("", None),
    ],
)
def test_the_version_is_the_line_with_a_number_and_no_advertisement(said: str, version: str | None) -> None:
    assert find_version(said) == version


@pytest.mark.parametrize("program", PRESETS)
def test_the_page_on_agent_programs_names_what_each_is_given_and_where_its_log_is(program: str) -> None:
    page = (Path(__file__).parents[2] / "docs" / "explain" / "runners.md").read_text()
    section = page.partition(f"### {program}\n")[2].partition("\n#")[0]
    for name in (*PRESETS[program].inherit, PRESETS[program].log):
        assert f"`{name}`" in section, name
