"""Choosing tools costs a request nothing that anybody notices, however many there are."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Iterator

from bench.claim import Claim, best_of

from wieldy import Toolbox
from wieldy.core.tool import Tool
from wieldy.tools.toolset import ToolIndex, order_tools, token_budget

VERBS = ("create", "list", "update", "delete", "search")
NOUNS = ("issue", "file", "branch", "commit", "user", "team", "mail", "event", "page", "table", "row", "chart", "task")


def tools(count: int) -> list[Tool]:
    made = []
    for n in range(count):
        verb, noun, other = VERBS[n % 5], NOUNS[n % 13], NOUNS[n // 13 % 13]
        schema = {
            "type": "object",
            "properties": {f"{noun}_id": {"type": "string"}, f"{other}_name": {"type": "string"}},
        }
        about = f"{verb} a {noun} of the {other}, with everything that belongs to it. Returns the {noun} as JSON. " * 2
        made.append(
            Tool.from_schema(f"mcp__s{n % 40}__{verb}_{noun}_{n}", about, schema, lambda input: "", read_only=True)
        )
    return made


def claims() -> Iterator[Claim]:
    many = tools(5_000)
    index = ToolIndex(many)
    queries = ("create issue in a branch", "table", "mail user about event", "repo", "select everything that belongs")
    [query] = best_of(7, lambda: [index.search(text, 5) for text in queries])
    yield Claim("ToolSearch over 5 000 tools, a query", query / len(queries) * 1000, 10, " ms", "index prepared")

    names = [tool.name for tool in many[:20]]
    order_tools(many, tokens=token_budget(200_000))
    [order] = best_of(7, lambda: order_tools(many, tokens=token_budget(200_000), activated=names))
    yield Claim("arranging 5 000 tools for a request", order * 1000, 30, " ms", "weights known")

    [small] = best_of(5, lambda: asyncio.run(_offering(many[:500])))
    yield Claim("first request with 500 tools, against its budget", small_share(many[:500]), 1.0, "×", f"{small:.2f} s")


async def _offering(extra: list[Tool]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with Toolbox(folder, tools=extra, settings={}) as box:
            offering = await box.offering(200_000)
            sent = sum(len(o.name) + len(o.description) + len(str(o.input_schema)) for o in offering.definitions)
            return (sent + len(offering.listing)) / 4


def small_share(extra: list[Tool]) -> float:
    return asyncio.run(_offering(extra)) / token_budget(200_000)
