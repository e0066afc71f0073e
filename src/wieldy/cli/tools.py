"""`wieldy tools`: what a model would be offered, and why a tool is not."""

from __future__ import annotations

import asyncio
import json
import sys
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import command_parser, folder
from wieldy.core.errors import ToolFailure
from wieldy.core.truncate import truncate
from wieldy.engine.pipeline import nearest
from wieldy.toolbox import Toolbox
from wieldy.toolset.order import MCP_PREFIX

if TYPE_CHECKING:
    from wieldy.core.tool import ToolContext
    from wieldy.subagents.tasks import SubagentHandle, SubagentTask

EXAMPLES = """examples:
  wieldy tools                what a model is offered here
  wieldy tools --all          every tool, and why one is not offered
  wieldy tools Grep --json    the schema of one tool"""

PATIENCE = 30.0
IN_A_SESSION = "in a session"


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy tools`."""
    parser = command_parser("wieldy tools", "List the tools a model would be offered in this folder.", EXAMPLES)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one tool with its schema")
    parser.add_argument("--all", action="store_true", help="also those that are not offered, with the reason")
    parser.add_argument("--json", action="store_true", help="a list of objects: name, offered, reason, input_schema …")
    parser.add_argument(
        "--root", type=folder, default=".", metavar="DIR", help="the folder to work in (default: this one)"
    )
    options = parser.parse_args(argv)
    rows = asyncio.run(_rows(options.root, options.name))
    if options.name is not None:
        rows = [row for row in rows if row["name"] == options.name]
        if not rows:
            return _unknown(options.name, options.root)
    elif not options.all:
        rows = [row for row in rows if row["offered"]]
    if options.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    elif options.name is not None:
        print(_in_full(rows[0]))
    else:
        width = max((len(row["name"]) for row in rows), default=0)
        print("\n".join(_line(row, width) for row in rows))
    return 0


async def _rows(root: str, name: str | None) -> list[dict[str, Any]]:
    async with Toolbox(root=root, load_settings=True) as box:
        if name is None or (name not in box.catalog and name.startswith(MCP_PREFIX)):
            await _servers(box)
        alone = {entry.tool.name for entry in await box.offer() if entry.offered}
        _as_in_a_session(box)
        return [
            {
                "name": entry.tool.name,
                "offered": entry.offered,
                "reason": entry.reason if entry.tool.name in alone or not entry.offered else IN_A_SESSION,
                "description": entry.tool.description,
                "read_only": entry.tool.read_only,
                "deferred": entry.tool.deferred,
                "input_schema": entry.tool.schema,
            }
            for entry in await box.offer()
        ]


def _as_in_a_session(box: Toolbox) -> None:
    """Where a model is set up, what needs one is offered as it would be to that model."""
    if box.workspace.env.get("WIELDY_MODEL") or box.settings.get("model"):
        from wieldy.subagents.tasks import SubagentAccess

        box.workspace.service(SubagentAccess).start = _nobody


async def _nobody(task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
    raise ToolFailure("Agents are sent in a session only.")


async def _servers(box: Toolbox) -> None:
    """Wait for the MCP servers, and say which did not come: their tools are missing below."""
    if not box.settings.get("mcpServers"):
        return
    from wieldy.cli.mcp import waiting_told
    from wieldy.mcp.client.manager import McpServers

    servers = box.workspace.service(McpServers)
    with waiting_told(servers):
        await box.connected(PATIENCE)
    for name, state in servers.states().items():
        if state.name != "ready":
            why = "still starting" if state.name == "connecting" else state
            print(f"wieldy: the MCP server {name} has no tools to offer; {why}", file=sys.stderr)
    for name, entry in servers.servers.items():
        for tool, why in entry.quarantined.items():
            print(f"wieldy: the tool {tool} of the MCP server {name} is left out: {why}", file=sys.stderr)


def _line(row: dict[str, Any], width: int) -> str:
    first = row["description"].split(". ")[0].rstrip(".")
    shown = f"{row['name']:<{width}} {truncate(first, 100)}"
    if row["offered"]:
        return f"{shown} ({row['reason']})" if row["reason"].startswith(("deferred", IN_A_SESSION)) else shown
    return f"{shown}\n{'':<{width}} not offered: {row['reason']}"


def _in_full(row: dict[str, Any]) -> str:
    state = "offered" if row["offered"] else "not offered"
    schema = json.dumps(row["input_schema"], ensure_ascii=False, indent=2)
    reason = "" if row["reason"] in ("", "available") else f": {row['reason']}"
    return f"{row['name']} ({state}{reason})\n\n{row['description']}\n\n{schema}"


def _unknown(name: str, root: str) -> int:
    near = nearest(name, list(Toolbox(root=root).catalog))
    hint = f" Did you mean `{near[0]}`?" if near else ""
    print(f"wieldy: no such tool: {name}.{hint}", file=sys.stderr)
    return 1
