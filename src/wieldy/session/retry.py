"""When to ask a model again: how long to wait, and when waiting is no use."""

from __future__ import annotations

from collections.abc import Callable

from wieldy.core.provider import ProviderFailure

MOST_ATTEMPTS = 8
# A server that comes up again needs a moment; one that was not started is not worth a minute of waiting.
MOST_WHEN_REFUSED = 4
LONGEST_BACKOFF = 60.0
LONGEST_WAIT = 300.0  # a server that asks for more than this is not waited for


def _at_random() -> float:
    import random

    return random.random()


def pause(
    failure: ProviderFailure, attempt: int, most: int = MOST_ATTEMPTS, jitter: Callable[[], float] = _at_random
) -> float | None:
    """Seconds to wait before the next attempt, or None when there should be none. What the server asks for is kept to."""
    if failure.kind == "refused":
        most = min(most, MOST_WHEN_REFUSED)
    if not failure.transient or attempt >= most:
        return None
    if failure.retry_after is not None:
        return failure.retry_after if failure.retry_after <= LONGEST_WAIT else None
    return min(2.0 ** (attempt - 1), LONGEST_BACKOFF) * (0.5 + jitter() / 2)
