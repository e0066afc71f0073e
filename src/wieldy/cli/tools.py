"""`wieldy tools`: list the tools a model is offered, and why others are not."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import add_root, command_parser, print_settings_problems
from wieldy.core.catalog import ToolAvailability
from wieldy.core.console import print_error, write, write_json
from wieldy.core.errors import ToolFailure
from wieldy.core.text import did_you_mean, truncate
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices
from wieldy.tools.subagents import NO_MODEL
from wieldy.tools.toolset import MCP_PREFIX

if TYPE_CHECKING:
    from wieldy.core.tool import ToolContext
    from wieldy.tools.subagents import SubagentHandle, SubagentTask

EXAMPLES = """examples:
  wieldy tools                the tools a model is offered here
  wieldy tools --all          every tool, and why one is not offered
  wieldy tools Grep --json    the schema of one tool"""

CONNECT_SECONDS = 30.0
IN_A_SESSION = "in a session"


def main(command: str, argv: list[str]) -> int:
    parser = command_parser("wieldy tools", "List the tools a model is offered in this folder.", EXAMPLES)
    parser.add_argument("name", nargs="?", metavar="NAME", help="show one tool with its schema")
    parser.add_argument("--all", action="store_true", help="also list tools that are not offered, with the reason")
    parser.add_argument("--json", action="store_true", help="print objects: name, offered, reason, input_schema …")
    add_root(parser)
    options = parser.parse_args(argv)
    rows = asyncio.run(_list_tools(options.root, options.name))
    if options.name is not None:
        rows = [row for row in rows if row["name"] == options.name]
        if not rows:
            return _report_unknown(options.name, options.root)
    elif not options.all:
        rows = [row for row in rows if row["offered"]]
    if options.json:
        write_json(rows)
    elif options.name is not None:
        write(_format_details(rows[0]))
    else:
        width = max((len(row["name"]) for row in rows), default=0)
        write("\n".join(_format_line(row, width) for row in rows))
    return 0


async def _list_tools(root: str, name: str | None) -> list[dict[str, Any]]:
    # Agents are offered as in a session; whether there could be one is checked below.
    host = HostServices(start_subagent=_refuse_subagent)
    async with Toolbox(root=root, load_settings=True, wait_for_servers=0, host=host) as box:
        print_settings_problems(box)
        if name is None or (name not in box.catalog and name.startswith(MCP_PREFIX)):
            await _connect_servers(box)
        has_model = bool(box.workspace.env.get("WIELDY_MODEL") or box.settings.get("model"))
        return [_describe(entry, has_model=has_model) for entry in await box.offer()]


def _describe(entry: ToolAvailability, *, has_model: bool) -> dict[str, Any]:
    tool, offered, reason = entry.tool, entry.offered, entry.reason
    if offered and tool.group == "agents":
        offered, reason = (True, IN_A_SESSION) if has_model else (False, NO_MODEL)
    return {
        "name": tool.name,
        "offered": offered,
        "reason": reason,
        "description": tool.description,
        "read_only": tool.read_only,
        "deferred": tool.deferred,
        "input_schema": tool.schema,
    }


async def _refuse_subagent(task: SubagentTask, ctx: ToolContext) -> SubagentHandle:
    raise ToolFailure("Agents are sent in a session only.")


async def _connect_servers(box: Toolbox) -> None:
    """Wait for the MCP servers, and report those whose tools are missing from the list."""
    if not box.settings.get("mcpServers"):
        return
    from wieldy.cli.mcp import show_waiting

    servers = box.workspace.services.mcp_servers
    with show_waiting(servers):
        await box.connected(CONNECT_SECONDS)
    for report in servers.reports().values():
        if report.state != "ready":
            print_error(f"the MCP server {report.name} has no tools to offer; {report.summary()}")
        for tool, why in report.left_out.items():
            print_error(f"the tool {tool} of the MCP server {report.name} is left out: {why}")


def _format_line(row: dict[str, Any], width: int) -> str:
    summary = row["description"].split(". ")[0].rstrip(".")
    line = f"{row['name']:<{width}} {truncate(summary, 100)}"
    if row["offered"]:
        return f"{line} ({row['reason']})" if row["reason"].startswith(("deferred", IN_A_SESSION)) else line
    return f"{line}\n{'':<{width}} not offered: {row['reason']}"


def _format_details(row: dict[str, Any]) -> str:
    state = "offered" if row["offered"] else "not offered"
    schema = json.dumps(row["input_schema"], ensure_ascii=False, indent=2)
    reason = "" if row["reason"] in ("", "available") else f": {row['reason']}"
    return f"{row['name']} ({state}{reason})\n\n{row['description']}\n\n{schema}"


def _report_unknown(name: str, root: str) -> int:
    print_error(f"there is no tool `{name}`{did_you_mean(name, Toolbox(root=root).catalog)}")
    return 1
