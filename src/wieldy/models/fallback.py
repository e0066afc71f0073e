"""A model with others that take over where it cannot answer."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from wieldy.core.provider import Delta, Provider, ProviderFailure, Request

TAKE_OVER = frozenset({"overloaded", "rate", "refused", "model"})


class FallbackModel:
    """Sends each request to the first model that answers: the next one takes over while one is overloaded or cannot be reached.

    A failure after the first piece of an answer is that of the request. `model` is the one that answered last.
    """

    def __init__(self, *models: Provider) -> None:
        self._models = models
        self.name = models[0].name
        self.model = models[0].model
        self.key_source = getattr(models[0], "key_source", "none")
        self.context_window = min(model.context_window for model in models)

    @asynccontextmanager
    async def stream(self, request: Request) -> AsyncIterator[AsyncIterator[Delta]]:
        """Send a request and stream its deltas. Raises `ProviderFailure` of the last model."""
        for model in self._models:
            async with AsyncExitStack() as attempt:
                try:
                    deltas = await attempt.enter_async_context(model.stream(request))
                    first = await anext(aiter(deltas), None)
                except ProviderFailure as failure:
                    if failure.kind not in TAKE_OVER or model is self._models[-1]:
                        raise
                    continue
                self.model = model.model
                yield _prepend(first, deltas)
                return

    async def aclose(self) -> None:
        for model in self._models:
            await model.aclose()


async def _prepend(first: Delta | None, rest: AsyncIterator[Delta]) -> AsyncIterator[Delta]:
    try:
        if first is not None:
            yield first
        async for delta in rest:
            yield delta
    finally:
        await rest.aclose()  # type: ignore[attr-defined]
