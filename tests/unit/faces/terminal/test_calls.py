"""How calls are named to a person."""

from __future__ import annotations

from wieldy import Cached, RateLimited, tool
from wieldy.core.outcome import Refused
from wieldy.core.tool import Tool
from wieldy.faces.terminal.calls import Call, CallFormatter
from wieldy.tools.exit_plan import exit_plan


@tool(read_only=True)
def look(path: str, depth: int = 1) -> str:
    """Look at a path."""
    return path


def shown(tool: Tool, fields: dict[str, object]) -> tuple[str, tuple[str, ...]]:
    formatter = CallFormatter(lambda name: tool, "/")
    call = Call("1", tool.name, input=fields)
    return formatter.describe(tool.name, fields), formatter.refusal_lines(
        call, Refused("check", "Wait.", person="Not now.")
    )


def test_a_limited_or_cached_tool_is_shown_like_the_tool_itself():
    fields: dict[str, object] = {"path": "/a/b", "depth": 2}
    assert shown(RateLimited(Cached(look, 60), 1, 60), fields) == shown(look, fields)
    assert shown(look, fields)[1] == ("Not now.",)
    plan: dict[str, object] = {"plan": "Do it."}
    assert shown(RateLimited(exit_plan, 1, 60), plan) == shown(exit_plan, plan)
    assert shown(exit_plan, plan)[1] == ("The plan was not approved: Not now.",)
