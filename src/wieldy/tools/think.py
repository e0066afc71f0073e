"""Think: a place to reason between two actions. The thought is part of the call, so every log has it."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.tool_decorator import tool


@tool(name="Think", described_in=__file__, fails={}, read_only=True)
async def think(thought: Annotated[str, "What you think"]) -> str:
    return "Noted." if thought.strip() else "There was no thought to note."
