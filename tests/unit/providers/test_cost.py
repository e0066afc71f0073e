"""What tokens cost."""

from __future__ import annotations

import pytest

from wieldy.core.provider import Usage
from wieldy.providers.cost import PRICES, cost, price

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-sonnet-4-5", 3 + 15 + 0.3 + 3.75),
        ("claude-sonnet-4-5-20250929", 3 + 15 + 0.3 + 3.75),
        ("anthropic/claude-opus-4-5", 5 + 25 + 0.5 + 6.25),
        ("claude-opus-4-1", 15 + 75 + 1.5 + 18.75),
        ("gpt-5-mini", 0.25 + 2 + 0.025 + 0.25),
        ("openai/gpt-4o-2024-11-20", 2.5 + 10 + 1.25 + 2.5),
    ],
)
def test_a_known_model_has_its_list_price(model, dollars):
    assert cost(model, Usage(MILLION, MILLION, MILLION, MILLION)) == pytest.approx(dollars)


@pytest.mark.parametrize(
    "model", ["script", "qwen3:8b", "gpt-5-pro", "gpt-5.1", "o3-pro", "gpt-50", "claude-sonnet-40"]
)
def test_an_unknown_model_has_no_known_cost(model):
    assert cost(model, Usage(1, 1)) is None


def test_every_price_is_found_under_its_own_name():
    assert all(price(model) is PRICES[model] for model in PRICES)
