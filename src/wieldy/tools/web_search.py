"""WebSearch: search the web."""

from __future__ import annotations

from typing import Annotated

from wieldy.core.effects import NO_EFFECTS
from wieldy.core.errors import ToolFailure
from wieldy.core.schema.fields import Param
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import tool
from wieldy.core.workspace import Workspace


def _enabled(workspace: Workspace) -> bool | str:
    from wieldy.web.search import NONE_SET_UP

    return True if workspace.services.search_services.service() is not None else NONE_SET_UP


@tool(
    name="WebSearch",
    described_in=__file__,
    rules="bare",
    fails={"query": ""},
    read_only=True,
    needs_permission=True,
    effects=lambda input, workspace: NO_EFFECTS,
    enabled=_enabled,
    timeout=90.0,
)
async def web_search(
    ctx: ToolContext,
    query: Annotated[str, Param(min_length=2)],
    allowed_domains: list[str] | None = None,
    blocked_domains: list[str] | None = None,
) -> Output:
    from wieldy.web.search import NONE_SET_UP, SearchQuery, filter_hits

    service = ctx.workspace.services.search_services.service()
    if service is None:
        raise ToolFailure(f"The web cannot be searched: {NONE_SET_UP}.")
    search = SearchQuery(query, tuple(allowed_domains or ()), tuple(blocked_domains or ()))
    hits = filter_hits(await service.search(search), search)
    data = {"query": query, "service": service.name, "results": [{"title": h.title, "url": h.url} for h in hits]}
    if not hits:
        scope = " on these domains" if search.allowed or search.blocked else ""
        return Output(f"Nothing was found{scope}. Try other words.", data)
    lines = [f"{n}. {hit.title}\n   {hit.url}\n   {hit.excerpt}".rstrip() for n, hit in enumerate(hits, 1)]
    return Output("\n".join(lines), data)
