"""What tokens cost, and what else is known of models."""

from __future__ import annotations

import pytest

from wieldy.core.provider import Usage
from wieldy.models.catalog import MODELS, cost, find_model

MILLION = 1_000_000


@pytest.mark.parametrize(
    ("model", "dollars"),
    [
        ("claude-opus-5-5", 4 + 20 + 0.2 + 5),
        ("claude-sonnet-5-5", 2 + 10 + 0.2 + 2.5),
        ("claude-fable-5-1", 10 + 50 + 0.25 + 12.5),
        ("claude-sonnet-4-5", 3 + 15 + 0.3 + 3.75),
        ("claude-sonnet-4-5-20250929", 3 + 15 + 0.3 + 3.75),
        ("anthropic/claude-opus-4-5", 5 + 25 + 0.5 + 6.25),
        ("claude-opus-4-1", 15 + 75 + 1.5 + 18.75),
        ("gpt-5-mini", 0.25 + 2 + 0.025 + 0.25),
        ("gpt-5.4-mini-2026-03-05", 0.75 + 4.5 + 0.075 + 0.75),
        ("openai/gpt-4o-2024-11-20", 2.5 + 10 + 1.25 + 2.5),
    ],
)
def test_a_known_model_has_its_list_price(model: str, dollars: float) -> None:
    assert cost(model, Usage(MILLION, MILLION, MILLION, MILLION)) == pytest.approx(dollars)


def test_where_long_prompts_cost_more_the_whole_prompt_counts_also_what_was_cached() -> None:
    assert cost("claude-haiku-5-5", Usage(100_000, 1_000)) == pytest.approx(0.0105)
    assert cost("claude-haiku-5-5", Usage(1, 1_000, cache_read_tokens=100_000)) == pytest.approx(
        0.0000005 + 0.0025 + 0.005
    )


@pytest.mark.parametrize(
    "model", ["script", "qwen3:8b", "gpt-5-pro", "gpt-5.1", "o3-pro", "gpt-50", "claude-sonnet-40", "gpt-5.5-pro"]
)
def test_an_unknown_model_has_no_known_cost(model: str) -> None:
    assert cost(model, Usage(1, 1)) is None


def test_every_model_is_found_under_its_own_name() -> None:
    assert all(find_model(model) is MODELS[model] for model in MODELS)
