"""Think: a place to reason between two actions. The thought is part of the call, so every log has it."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.tool_decorator import load_description, tool

DESCRIPTION, PROMPT = load_description(__file__)


@tool(name="Think", description=DESCRIPTION, prompt=PROMPT, read_only=True)
async def think(thought: Annotated[str, "What you think"]) -> str:
    return "Noted." if thought.strip() else "There was no thought to note."
