"""WebFetch: a web page as a model can read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.content import Content, Image, Text
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool, words
from wieldy.web.address import canonical_url, fetches_url

if TYPE_CHECKING:
    from wieldy.web.fetch import Moved
    from wieldy.web.page import Page

DESCRIPTION, PROMPT = words(__file__)


@tool(
    name="WebFetch",
    description=DESCRIPTION,
    prompt=PROMPT,
    read_only=True,
    needs_permission=True,
    normalize=canonical_url,
    effects=fetches_url,
    timeout=120.0,
)
async def web_fetch(
    ctx: ToolContext,
    url: Annotated[str, "https:// or http://"],
    prompt: Annotated[str, "What you want to know from the page"] = "",
) -> Output:
    """Fetch a page."""
    from wieldy.web.address import parse_address
    from wieldy.web.fetch import Fetcher, Moved
    from wieldy.web.page import PageCache, read_page
    from wieldy.web.summary import Summaries, Unanswered

    cache = ctx.workspace.service(PageCache)
    page = cache.find(url)
    if page is None:
        answer = await ctx.workspace.service(Fetcher).get(parse_address(url))
        if isinstance(answer, Moved):
            return _moved(answer)
        page = await read_page(answer, ctx.workspace.session_dir / "web")
        cache.keep(url, page)
    remarks = page.remarks
    try:
        answered = await ctx.workspace.service(Summaries).answer(prompt, page.text)
    except Unanswered as why:
        answered, remarks = None, (*remarks, str(why))
    if answered is not None:
        return Output(f"{_heading(page)}\n\n{answered}", _data(page, answered))
    return Output(_shown(page, remarks), _data(page, page.text))


def _moved(answer: Moved) -> Output:
    text = (
        f"{answer.address} redirects ({answer.status}) to another place, which was not followed: {answer.to}\n"
        "To read that page, call WebFetch with this address."
    )
    return Output(text, {"url": answer.address.url, "code": answer.status, "redirect": answer.to.url})


def _shown(page: Page, remarks: Sequence[str]) -> Content:
    said = "".join(f"\n\n[{remark}]" for remark in remarks)
    if any(isinstance(block, Image) for block in page.content):
        return (Text(f"{_heading(page)}{said}"), *page.content)
    return (Text(f"{_heading(page)}\n\n{page.text}{said}"),)


def _heading(page: Page) -> str:
    return f"{page.title}\n<{page.url}>" if page.title else f"<{page.url}>"


def _data(page: Page, result: str) -> dict[str, Any]:
    return {
        "url": page.url,
        "code": page.status,
        "title": page.title,
        "contentType": page.media_type,
        "bytes": page.bytes,
        "result": result,
    }
