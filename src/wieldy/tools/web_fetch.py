"""WebFetch: a web page as a model can read it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

from wieldy.core.errors import WieldyError
from wieldy.core.outcome import Content, Image, Text
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.web.url import canonical_url, fetches_url

if TYPE_CHECKING:
    from wieldy.web.fetch import HttpRedirect
    from wieldy.web.page import WebPage

MAX_SUMMARIZED_CHARS = 100_000


@tool(
    name="WebFetch",
    described_in=__file__,
    rules="domain",
    fails={"url": "nowhere"},
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
    from wieldy.web.fetch import HttpRedirect
    from wieldy.web.page import read_page
    from wieldy.web.url import parse_url

    cache = ctx.workspace.services.page_cache
    page = cache.get(url)
    if page is None:
        response = await ctx.workspace.services.fetcher.fetch(parse_url(url))
        if isinstance(response, HttpRedirect):
            return _redirect_output(response)
        page = await read_page(response, ctx.workspace.session_dir / "web")
        cache.put(url, page)
    answer, remarks = None, page.remarks
    summarize = ctx.workspace.services.summarizer
    if summarize is not None and prompt.strip() and page.text.strip():
        try:
            answer = await summarize(prompt, page.text[:MAX_SUMMARIZED_CHARS])
        except WieldyError as failure:
            remarks = (*remarks, f"the question could not be put to the small model: {failure}")
    if answer is not None:
        return Output(f"{_heading(page)}\n\n{answer}", _data(page, answer))
    return Output(_content(page, remarks), _data(page, page.text))


def _redirect_output(redirect: HttpRedirect) -> Output:
    text = (
        f"{redirect.url} redirects ({redirect.status}) to another place, which was not followed: {redirect.location}\n"
        "To read that page, call WebFetch with this address."
    )
    return Output(text, {"url": str(redirect.url), "code": redirect.status, "redirect": str(redirect.location)})


def _content(page: WebPage, remarks: Sequence[str]) -> Content:
    suffix = "".join(f"\n\n[{remark}]" for remark in remarks)
    if any(isinstance(block, Image) for block in page.content):
        return (Text(f"{_heading(page)}{suffix}"), *page.content)
    return (Text(f"{_heading(page)}\n\n{page.text}{suffix}"),)


def _heading(page: WebPage) -> str:
    return f"{page.title}\n<{page.url}>" if page.title else f"<{page.url}>"


def _data(page: WebPage, result: str) -> dict[str, Any]:
    return {
        "url": page.url,
        "code": page.status,
        "title": page.title,
        "contentType": page.media_type,
        "bytes": page.bytes,
        "result": result,
    }
