"""BrowserNavigate: a page in a real browser."""

from __future__ import annotations

from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.browser import browser_available
from wieldy.web.url import canonical_page_url, fetches_url


@tool(
    name="BrowserNavigate",
    described_in=__file__,
    fails={"url": "nowhere"},
    deferred=True,
    normalize=canonical_page_url,
    effects=fetches_url,
    concurrency_safe=False,
    enabled=browser_available,
    timeout=120.0,
)
async def browser_navigate(ctx: ToolContext, url: str) -> Output:
    """Open a page."""
    from wieldy.web.browser import snapshot

    session = ctx.workspace.services.browser
    status = await session.navigate(url, ctx.judge)
    return Output(await snapshot(session, ctx.judge), {"url": session.url, "code": status})
