"""What a request has cost, at list prices. A model that is not listed has no known cost."""

from __future__ import annotations

from wieldy.core.provider import Usage
from wieldy.providers.models import MILLION, known


def cost(model: str, usage: Usage) -> float | None:
    """Dollars; None where the price is not known."""
    found = known(model)
    if found is None:
        return None
    price = found.price_of(usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens)
    return (
        usage.input_tokens * price.input
        + usage.output_tokens * price.output
        + usage.cache_read_tokens * price.cache_read
        + usage.cache_write_tokens * price.cache_write
    ) / MILLION
