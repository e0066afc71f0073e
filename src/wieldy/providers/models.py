"""Known models: list prices in US dollars per million tokens, context windows, and how they think."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.core.provider import Usage

MILLION = 1_000_000

Thinking: TypeAlias = Literal["budget", "adaptive", "always"]
"""Whether a model thinks within a token budget, adaptively on request, or adaptively by default."""


class Price(Struct, frozen=True):
    """Dollars per million tokens."""

    input: float
    output: float
    cache_read: float
    cache_write: float


class ModelInfo(Struct, frozen=True):
    """One model or a family. A request whose prompt is longer than `long_prompt_tokens` costs `long_prompt_price`."""

    price: Price
    context_window: int
    thinking: Thinking = "budget"
    long_prompt_tokens: int = 0
    long_prompt_price: Price | None = None

    def price_of(self, prompt_tokens: int) -> Price:
        if self.long_prompt_price is not None and prompt_tokens > self.long_prompt_tokens:
            return self.long_prompt_price
        return self.price


def _claude(input: float, output: float, read: float = 0.1) -> Price:
    return Price(input, output, input * read, input * 1.25)


def _cached(input: float, output: float, cache_read: float) -> Price:
    return Price(input, output, cache_read, input)


_FABLE_1 = ModelInfo(_claude(10, 50, 0.025), MILLION, "always")
_FABLE = ModelInfo(_claude(10, 50), MILLION, "always")
_OPUS = _claude(5, 25)
_OLD_OPUS = ModelInfo(_claude(15, 75), 200_000)
_SONNET_5 = ModelInfo(_claude(2, 10), MILLION, "always")
_SONNET = ModelInfo(_claude(3, 15), 200_000)
_DEEPSEEK = ModelInfo(_cached(0.28, 0.42, 0.028), 128_000)

# By prefix of the model name; the longest match wins. Prices as of 2026-11.
MODELS: Mapping[str, ModelInfo] = {
    "claude-fable-5-1": _FABLE_1,
    "claude-mythos-5-1": _FABLE_1,
    "claude-fable-5": _FABLE,
    "claude-mythos-5": _FABLE,
    "claude-opus-5-5": ModelInfo(_claude(4, 20, 0.05), MILLION, "always"),
    "claude-opus-5": ModelInfo(_OPUS, MILLION, "always"),
    "claude-opus-4-8": ModelInfo(_OPUS, MILLION, "adaptive"),
    "claude-opus-4-7": ModelInfo(_OPUS, MILLION, "adaptive"),
    "claude-opus-4-6": ModelInfo(_OPUS, 200_000, "adaptive"),
    "claude-opus-4-5": ModelInfo(_OPUS, 200_000),
    "claude-opus-4": _OLD_OPUS,
    "claude-sonnet-5-5": _SONNET_5,
    "claude-sonnet-5": _SONNET_5,
    "claude-sonnet-4-6": ModelInfo(_claude(3, 15), 200_000, "adaptive"),
    "claude-sonnet-4": _SONNET,
    "claude-3-7-sonnet": _SONNET,
    "claude-3-5-sonnet": _SONNET,
    "claude-haiku-5-5": ModelInfo(_claude(0.1, 0.5), MILLION, "always", 100_000, _claude(0.5, 2.5)),
    "claude-haiku-4-5": ModelInfo(_claude(1, 5), 200_000),
    "claude-3-5-haiku": ModelInfo(_claude(0.8, 4), 200_000),
    "gpt-5.5": ModelInfo(_cached(5, 30, 0.5), 272_000),
    "gpt-5.4": ModelInfo(_cached(2.5, 15, 0.25), 272_000),
    "gpt-5.4-mini": ModelInfo(_cached(0.75, 4.5, 0.075), 272_000),
    "gpt-5.4-nano": ModelInfo(_cached(0.2, 1.25, 0.02), 272_000),
    "gpt-5": ModelInfo(_cached(1.25, 10, 0.125), 272_000),
    "gpt-5-mini": ModelInfo(_cached(0.25, 2, 0.025), 272_000),
    "gpt-5-nano": ModelInfo(_cached(0.05, 0.4, 0.005), 272_000),
    "gpt-4.1": ModelInfo(_cached(2, 8, 0.5), MILLION),
    "gpt-4.1-mini": ModelInfo(_cached(0.4, 1.6, 0.1), MILLION),
    "gpt-4.1-nano": ModelInfo(_cached(0.1, 0.4, 0.025), MILLION),
    "gpt-4o": ModelInfo(_cached(2.5, 10, 1.25), 128_000),
    "gpt-4o-mini": ModelInfo(_cached(0.15, 0.6, 0.075), 128_000),
    "o3": ModelInfo(_cached(2, 8, 0.5), 200_000),
    "o4-mini": ModelInfo(_cached(1.1, 4.4, 0.275), 200_000),
    "deepseek-chat": _DEEPSEEK,
    "deepseek-reasoner": _DEEPSEEK,
}
# Models with other prices whose names begin like a listed one.
UNKNOWN = ("gpt-5-pro", "gpt-5.4-pro", "gpt-5.5-pro", "o3-pro", "o3-deep-research", "gpt-4o-audio", "gpt-4o-realtime")


@lru_cache(maxsize=64)
def find_model(model: str) -> ModelInfo | None:
    """Look a model up by name; a prefix such as `anthropic/` is ignored."""
    name = model.rpartition("/")[2].lower()
    if name.startswith(UNKNOWN):
        return None
    matches = [key for key in MODELS if name == key or name.startswith((f"{key}-", f"{key}@", f"{key}:"))]
    return MODELS[max(matches, key=len)] if matches else None


def cost(model: str, usage: Usage) -> float | None:
    """The cost in dollars; None where the price is unknown."""
    info = find_model(model)
    if info is None:
        return None
    price = info.price_of(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
    ) / MILLION
