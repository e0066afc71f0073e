"""BrowserSnapshot: what is on the page now."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.browser import browser_available


@tool(
    name="BrowserSnapshot",
    described_in=__file__,
    fails={},
    deferred=True,
    read_only=True,
    concurrency_safe=False,
    enabled=browser_available,
    timeout=60.0,
)
async def browser_snapshot(ctx: ToolContext, ref: Annotated[str, "Of a part to show alone"] = "") -> Output:
    """Look at the page."""
    from wieldy.web.browser import snapshot

    session = ctx.workspace.services.browser
    return Output(await snapshot(session, ctx.judge, ref), {"url": session.url})
