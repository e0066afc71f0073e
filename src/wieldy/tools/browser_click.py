"""BrowserClick: a click on an element of the page."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.browser import browser_available, page_effects


@tool(
    name="BrowserClick",
    described_in=__file__,
    fails={"ref": "e1"},
    deferred=True,
    effects=page_effects,
    concurrency_safe=False,
    enabled=browser_available,
    timeout=90.0,
)
async def browser_click(
    ctx: ToolContext,
    ref: Annotated[str, "Of the element, such as e12"],
    double: Annotated[bool, "Double click"] = False,
) -> Output:
    """Click."""
    from wieldy.web.browser import snapshot

    session = ctx.workspace.services.browser
    async with session.act(ctx.judge) as page:
        element = await session.element(page, ref)
        await (element.dblclick() if double else element.click())
    return Output(await snapshot(session, ctx.judge), {"url": session.url})
