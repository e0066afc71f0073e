"""BrowserScreenshot: the page as an image."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.outcome import Text
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.browser import browser_available


@tool(
    name="BrowserScreenshot",
    described_in=__file__,
    fails={},
    deferred=True,
    read_only=True,
    concurrency_safe=False,
    enabled=browser_available,
    timeout=60.0,
)
async def browser_screenshot(
    ctx: ToolContext, ref: Annotated[str, "Of one element"] = "", full_page: bool = False
) -> Output:
    """Take a screenshot."""
    from wieldy.files.reading.media import prepare_image

    session = ctx.workspace.services.browser
    async with session.act(ctx.judge, settle=False) as page:
        if ref:
            png = await (await session.element(page, ref)).screenshot()
        else:
            png = await page.screenshot(full_page=full_page)
    image = await in_thread(prepare_image, png, "the screenshot")
    size = f"{image.original.width}×{image.original.height}"
    shrunk = f", shown at {image.width}×{image.height}" if image.shrunk else ""
    text = f"<{session.url}> {size} pixels{shrunk}"
    return Output((Text(text), image.block), {"url": session.url, "width": image.width, "height": image.height})
