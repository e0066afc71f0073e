"""BrowserClick: a click on an element of the page."""

from __future__ import annotations

from typing import Annotated

from wieldy.browser.session import talks_to_page, usable
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool, words

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="BrowserClick",
    description=DESCRIPTION,
    prompt=PROMPT,
    deferred=True,
    effects=talks_to_page,
    concurrency_safe=False,
    enabled=usable,
    timeout=90.0,
)
async def browser_click(
    ctx: ToolContext,
    ref: Annotated[str, "Of the element, such as e12"],
    double: Annotated[bool, "Double click"] = False,
) -> Output:
    """Click."""
    from wieldy.browser.session import BrowserSession, view

    session = ctx.workspace.service(BrowserSession)
    async with session.act(ctx.judge) as page:
        element = await session.element(page, ref)
        await (element.dblclick() if double else element.click())
    return Output(await view(session, ctx.judge), {"url": session.url})
