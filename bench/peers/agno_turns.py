"""agno with a model object that asks for `add` once a turn: seconds a turn. Run by `run_peer` in agno's own environment."""

from __future__ import annotations

import asyncio
import json
import logging
import statistics
import sys
import time
from itertools import pairwise
from typing import Any

from agno.agent import Agent  # type: ignore[import-not-found]
from agno.models.base import Model  # type: ignore[import-not-found]
from agno.models.response import ModelResponse  # type: ignore[import-not-found]
from agno.tools import tool  # type: ignore[import-not-found]

TURNS = int(sys.argv[1])
stamps: list[float] = []


@tool(name="add")
async def add(a: int, b: int) -> int:
    """Add two integers."""
    return a + b


class Asks(Model):  # type: ignore[misc]
    def _answer(self) -> Any:
        stamps.append(time.perf_counter())
        if len(stamps) > TURNS:
            return ModelResponse(role="assistant", content="done")
        arguments = json.dumps({"a": len(stamps), "b": 1})
        function = {"name": "add", "arguments": arguments}
        return ModelResponse(
            role="assistant",
            content="",
            tool_calls=[{"id": f"c{len(stamps)}", "type": "function", "function": function}],
        )

    def invoke(self, *args: Any, **kwargs: Any) -> Any:
        return self._answer()

    async def ainvoke(self, *args: Any, **kwargs: Any) -> Any:
        return self._answer()

    def invoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def ainvoke_stream(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError

    def _parse_provider_response(self, response: Any, **kwargs: Any) -> Any:
        return response

    def _parse_provider_response_delta(self, response: Any) -> Any:
        return response


logging.disable(logging.CRITICAL)
asyncio.run(Agent(model=Asks(id="fake"), tools=[add], telemetry=False).arun("go"))
gaps = [after - before for before, after in pairwise(stamps)]
print(json.dumps({"seconds": statistics.median(gaps[len(gaps) // 4 :]), "turns": len(gaps)}))
