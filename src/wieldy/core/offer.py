"""Which tools are offered, each with the reason."""

from __future__ import annotations

from wieldy.core.record import record
from wieldy.core.tool import Tool


@record
class Offered:
    """One tool, whether a model is offered it, and why or why not."""

    tool: Tool
    offered: bool
    reason: str
