"""BrowserClose: the end of the browser."""

from __future__ import annotations

from wieldy.core.effects import NO_EFFECTS
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.browser import browser_available


@tool(
    name="BrowserClose",
    described_in=__file__,
    fails={"x": 1},
    deferred=True,
    effects=lambda input, workspace: NO_EFFECTS,
    # It reaches only the browser this workspace started itself.
    needs_permission=False,
    concurrency_safe=False,
    enabled=browser_available,
    timeout=60.0,
)
async def browser_close(ctx: ToolContext) -> Output:
    """Close the browser."""

    was_open = await ctx.workspace.services.browser.close()
    return Output("The browser is closed." if was_open else "No browser was open.")
