"""Which tools are offered, each with the reason."""

from __future__ import annotations

from dataclasses import dataclass

from wieldy.core.tool import Tool


@dataclass(frozen=True, slots=True)
class Offered:
    """One tool, whether a model is offered it, and why or why not."""

    tool: Tool
    offered: bool
    reason: str
