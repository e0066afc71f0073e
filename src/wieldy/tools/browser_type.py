"""BrowserType: text into a field of the page."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.browser import browser_available, page_effects


@tool(
    name="BrowserType",
    described_in=__file__,
    fails={"ref": "e1", "text": "x"},
    deferred=True,
    effects=page_effects,
    concurrency_safe=False,
    enabled=browser_available,
    timeout=90.0,
)
async def browser_type(
    ctx: ToolContext,
    ref: Annotated[str, "Of the field, such as e12"],
    text: str,
    submit: Annotated[bool, "Press Enter"] = False,
) -> Output:
    """Type."""
    from wieldy.web.browser import snapshot

    session = ctx.workspace.services.browser
    async with session.act(ctx.judge) as page:
        field = await session.element(page, ref)
        if await field.evaluate("element => element.tagName") == "SELECT":
            await field.select_option(label=text)
        else:
            await field.fill(text)
        if submit:
            await field.press("Enter")
    return Output(await snapshot(session, ctx.judge), {"url": session.url})
