"""What models cost, in dollars a million tokens, as their makers list it: what holds where hive.toml says nothing.

A name stands for every model that begins with it, so that `claude-opus` is what a new one costs until it has a line.
"""

from hivekeeper.domain.price import Price

PRICES_AS_OF = "February 2026"

PRICES = {
    "claude-opus": Price(5.0, 25.0, 0.5, 6.25),
    "claude-opus-4-20250514": Price(15.0, 75.0, 1.5, 18.75),
    "claude-opus-4-1": Price(15.0, 75.0, 1.5, 18.75),
    "claude-sonnet": Price(3.0, 15.0, 0.3, 3.75),
    "claude-haiku": Price(1.0, 5.0, 0.1, 1.25),
    "claude-3-7-sonnet": Price(3.0, 15.0, 0.3, 3.75),
    "claude-3-5-haiku": Price(0.8, 4.0, 0.08, 1.0),
    "gpt-5": Price(1.25, 10.0, 0.125),
    "gpt-5-mini": Price(0.25, 2.0, 0.025),
    "gpt-5-nano": Price(0.05, 0.4, 0.005),
    "gpt-5-pro": Price(15.0, 120.0),
    "gpt-5.1": Price(1.25, 10.0, 0.125),
    "gpt-5.1-codex-mini": Price(0.25, 2.0, 0.025),
    "gpt-5.2": Price(1.75, 14.0, 0.175),
    "gpt-5.2-pro": Price(21.0, 168.0),
    "gpt-4.1": Price(2.0, 8.0, 0.5),
    "gpt-4.1-mini": Price(0.4, 1.6, 0.1),
    "gpt-4.1-nano": Price(0.1, 0.4, 0.025),
    "o3": Price(2.0, 8.0, 0.5),
    "o4-mini": Price(1.1, 4.4, 0.275),
    "gemini-2.5-pro": Price(1.25, 10.0, 0.125),
    "gemini-2.5-flash": Price(0.3, 2.5, 0.03),
    "gemini-2.5-flash-lite": Price(0.1, 0.4, 0.01),
    "gemini-3-pro": Price(2.0, 12.0, 0.2),
    "gemini-3-flash": Price(0.5, 3.0, 0.05),
}
