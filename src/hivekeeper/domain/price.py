"""What tokens cost where a program tells tokens and no money: a price a model, the person's before those shipped."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from hivekeeper.domain.report import Usage

_ENDS = "-@:[ "  # what may follow a model's name: a date, a provider's version, a variant


@dataclass(frozen=True, slots=True)
class Price:
    """Dollars a million tokens; tokens of the cache cost as much as others where nothing else is said."""

    input: float
    output: float
    cache_read: float | None = None
    cache_write: float | None = None

    def tell(self, used: Usage) -> int:
        """Tell what so much costs, in millionths of a dollar."""
        read, write = min(used.cache_read, used.tokens_in), min(used.cache_write, used.tokens_in)
        plain = max(0, used.tokens_in - read - write)
        cached = read * (self.input if self.cache_read is None else self.cache_read)
        cached += write * (self.input if self.cache_write is None else self.cache_write)
        return round(plain * self.input + cached + used.tokens_out * self.output)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices by model; `own` is that of a runner, whatever its model."""

    models: Mapping[str, Price] = field(default_factory=dict)
    own: Price | None = None

    def find(self, model: str) -> Price | None:
        """Find a model's price: by the longest name in the table that it begins with, whoever serves it."""
        name = model.rpartition("/")[2].rpartition("anthropic.")[2].casefold()
        names = (known for known in self.models if name.startswith(known) and f"{name}-"[len(known)] in _ENDS)
        found = max(names, key=len, default=None)
        return self.own or (self.models[found] if found else None)

    def fill(self, model: str, used: Usage) -> Usage:
        """Add what it cost where the program has not told that itself."""
        price = None if used.microusd else self.find(model)
        return replace(used, microusd=price.tell(used)) if price else used


NO_PRICES = Prices()
