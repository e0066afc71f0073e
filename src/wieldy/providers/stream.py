"""One request to a model and the deltas of its answer, whichever API it speaks."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TypeAlias

from wieldy.core.provider import Delta
from wieldy.providers.http import Http, HttpFailure, Response
from wieldy.providers.leisure import Signs
from wieldy.providers.refusal import accepted, unheard
from wieldy.providers.sse import events_of

Deltas: TypeAlias = Callable[[AsyncIterator[Sequence[bytes]], str, Response], AsyncIterator[Delta]]


@asynccontextmanager
async def streamed(
    http: Http, path: str, body: bytes, model: str, deltas: Deltas, signs: Signs | None
) -> AsyncIterator[AsyncIterator[Delta]]:
    """Send a request and give its deltas, some at a time unless the `signs` show more. Raises `ProviderFailure`."""
    try:
        async with http.post(path, body) as response:
            await accepted(response, model, http.place)
            if signs is not None:
                response.take_leisure(signs)
            async with aclosing(events_of(response)) as events:
                yield deltas(events, model, response)
    except HttpFailure as broken:
        raise unheard(broken) from None
