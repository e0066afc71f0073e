"""What tokens cost: public list prices in US dollars per million tokens. A model that is not listed has no known cost."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from wieldy.core.provider import Usage
from wieldy.core.record import record

AS_OF = "2025-11"


@record
class Price:
    """Dollars per million tokens; a cache is read and written at prices of its own."""

    input: float
    output: float
    cache_read: float
    cache_write: float


def _claude(input: float, output: float) -> Price:
    return Price(input, output, input * 0.1, input * 1.25)


def _cached(input: float, output: float, cache_read: float) -> Price:
    return Price(input, output, cache_read, input)


# By the beginning of a model's name; the longest that fits counts.
PRICES: Mapping[str, Price] = {
    "claude-opus-4-5": _claude(5, 25),
    "claude-opus-4": _claude(15, 75),
    "claude-sonnet-4": _claude(3, 15),
    "claude-3-7-sonnet": _claude(3, 15),
    "claude-3-5-sonnet": _claude(3, 15),
    "claude-haiku-4-5": _claude(1, 5),
    "claude-3-5-haiku": _claude(0.8, 4),
    "gpt-5": _cached(1.25, 10, 0.125),
    "gpt-5-mini": _cached(0.25, 2, 0.025),
    "gpt-5-nano": _cached(0.05, 0.4, 0.005),
    "gpt-4.1": _cached(2, 8, 0.5),
    "gpt-4.1-mini": _cached(0.4, 1.6, 0.1),
    "gpt-4.1-nano": _cached(0.1, 0.4, 0.025),
    "gpt-4o": _cached(2.5, 10, 1.25),
    "gpt-4o-mini": _cached(0.15, 0.6, 0.075),
    "o3": _cached(2, 8, 0.5),
    "o4-mini": _cached(1.1, 4.4, 0.275),
    "deepseek-chat": _cached(0.28, 0.42, 0.028),
    "deepseek-reasoner": _cached(0.28, 0.42, 0.028),
}
# Cheaper or dearer relatives whose names begin like a listed one, and whose price is not known here.
UNKNOWN = ("gpt-5-pro", "gpt-5.", "o3-pro", "o3-deep-research", "gpt-4o-audio", "gpt-4o-realtime")


@lru_cache(maxsize=64)
def price(model: str) -> Price | None:
    """The list price of a model, or None where it is not known. Prefixes such as `anthropic/` do not matter."""
    name = model.rpartition("/")[2].lower()
    if name.startswith(UNKNOWN):
        return None
    fitting = [start for start in PRICES if name == start or name.startswith((f"{start}-", f"{start}@", f"{start}:"))]
    return PRICES[max(fitting, key=len)] if fitting else None


def cost(model: str, usage: Usage) -> float | None:
    """What a request has cost, in dollars; None where the price is not known."""
    known = price(model)
    if known is None:
        return None
    return (
        usage.input_tokens * known.input
        + usage.output_tokens * known.output
        + usage.cache_read_tokens * known.cache_read
        + usage.cache_write_tokens * known.cache_write
    ) / 1_000_000
