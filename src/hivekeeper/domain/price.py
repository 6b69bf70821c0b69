"""What tokens cost, for programs that report tokens only: prices by model; the user's override the built-in ones."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hivekeeper.domain.report import Usage

_ENDS = "-@:[ "  # what may follow a model's name: a date, a version, a variant


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars per million tokens; without cache prices, cached tokens cost as much as others."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def cost_of(self, used: Usage) -> int:
        """Return the cost in millionths of a dollar."""
        read, write = min(used.cache_read, used.tokens_in), min(used.cache_write, used.tokens_in)
        plain = max(0, used.tokens_in - read - write)
        cached = read * (self.input if self.cache_read is None else self.cache_read)
        cached += write * (self.input if self.cache_write is None else self.cache_write)
        return round(plain * self.input + cached + used.tokens_out * self.output)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model; `own` is a runner's price for any model."""

    models: Mapping[str, Price] = field(default_factory=dict)
    own: Price | None = None

    def find(self, model: str) -> Price | None:
        """Find a model's price: by the longest name in the table that it begins with, for any provider."""
        name = model.rpartition("/")[2].rpartition("anthropic.")[2].casefold()
        names = (known for known in self.models if name.startswith(known) and f"{name}-"[len(known)] in _ENDS)
        found = max(names, key=len, default=None)
        return self.own or (self.models[found] if found else None)

    def add_cost(self, model: str, used: Usage) -> Usage:
        """Add the cost if the program did not report it."""
        price = None if used.microusd else self.find(model)
        return replace(used, microusd=price.cost_of(used)) if price else used


NO_PRICES = Prices()
