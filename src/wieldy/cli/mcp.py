"""`wieldy mcp`: the servers whose tools a model is offered here, and our own tools as a server."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from wieldy.cli.arguments import amount, command_parser, folder
from wieldy.core.truncate import truncate
from wieldy.settings.sources import FOLDER, LOCAL, SHARED
from wieldy.settings.store import local_file, project_file, set_value, user_file
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    from wieldy.mcp.client.manager import McpServers
    from wieldy.mcp.client.prompts import ServerPrompt

EXAMPLES = """examples:
  wieldy mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  wieldy mcp add docs https://example.org/mcp --header "Authorization: Bearer ${DOCS_TOKEN}"
  wieldy mcp add db --scope user --env URL='${DATABASE_URL}' -- my-server --read-only
  wieldy mcp list               every server and how it is doing
  wieldy mcp get files          one server: its tools, and its last words
  wieldy mcp reconnect files    try again, and say what happens
  wieldy mcp remove files
  wieldy mcp serve --help       our own tools to other programs"""

NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
PATIENCE = 60.0
IMPATIENCE = 2.0


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy mcp`."""
    if argv[:1] == ["serve"]:
        from wieldy.cli.mcp_serve import main as serve

        return serve(argv[1:])
    own, program = _split(argv)
    parser = _parser()
    options, extra = parser.parse_known_args(own)
    if options.verb == "add" and not program and (extra or (options.url and "://" not in options.url)):
        line = " ".join(filter(None, (options.url, *extra)))
        return _wrong(f"a command line goes behind `--`: wieldy mcp add {options.name} -- {line}")
    if extra:
        parser.error(f"unknown option {extra[0]}")
    options.program = program
    verbs = {"add": _add, "remove": _remove, "list": _list, "get": _get, "reconnect": _reconnect}
    return verbs[options.verb](options)


def _split(argv: list[str]) -> tuple[list[str], list[str]]:
    """Our words, and the command line behind `--`."""
    if "--" not in argv:
        return argv, []
    at = argv.index("--")
    return argv[:at], argv[at + 1 :]


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("wieldy mcp", "The MCP servers whose tools a model is offered in this folder.", EXAMPLES)
    verbs = parser.add_subparsers(dest="verb", required=True, metavar="add | remove | list | get | reconnect | serve")
    add = _verb(verbs, "add", "add a server: a URL, or a command line behind `--`")
    add.add_argument("name", metavar="NAME")
    add.add_argument("url", metavar="URL", nargs="?")
    add.add_argument("--scope", choices=("local", "project", "user"), default="local", help="whose settings it goes to")
    add.add_argument("--type", choices=("stdio", "http", "sse"), help="how to talk to it (default: by what is given)")
    add.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="may hold ${VAR}, ${VAR:-default}"
    )
    add.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'")
    add.add_argument("--timeout", type=amount, metavar="SECONDS", help="for each call")
    add.add_argument("--always-load", action="store_true", help="never send its tools by name only")
    remove = _verb(verbs, "remove", "take a server out of the settings")
    remove.add_argument("name", metavar="NAME")
    remove.add_argument("--scope", choices=("local", "project", "user"), help="only from there")
    _verb(verbs, "list", "every server and how it is doing").add_argument("--json", action="store_true")
    get = _verb(verbs, "get", "one server in full")
    get.add_argument("name", metavar="NAME")
    get.add_argument("--json", action="store_true")
    _verb(verbs, "reconnect", "connect to a server now and say what happens").add_argument("name", metavar="NAME")
    verbs.add_parser("serve", help="our own tools to any MCP client; `wieldy mcp serve --help`")
    return parser


def _verb(verbs: Any, name: str, about: str) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = verbs.add_parser(name, help=about, description=about)
    parser.add_argument("--root", type=folder, default=".", metavar="DIR", help="the folder (default: this one)")
    return parser


def _file(scope: str, root: str) -> Path:
    return {"local": local_file, "project": project_file}[scope](root) if scope != "user" else user_file()


def _add(options: argparse.Namespace) -> int:
    from wieldy.mcp.client.config import InvalidServer, parse_server
    from wieldy.permissions.trust import ConsentItem, Trust

    if not NAME.fullmatch(options.name):
        return _wrong(f"`{options.name}` is no name for a server: use letters, digits, `-` and `_`")
    if bool(options.url) == bool(options.program):
        return _wrong("give either a URL or, behind `--`, a command line")
    try:
        entry = _entry(options)
        parse_server(options.name, entry)
    except (InvalidServer, ValueError) as why:
        return _wrong(str(why))
    file = _file(options.scope, options.root)
    set_value(file, f"mcpServers.{options.name}", entry)
    # Who types this command has seen what it adds.
    Trust().accept(os.path.realpath(options.root), [ConsentItem.for_value(f"mcpServers.{options.name}", entry)])
    print(f"{options.name} → {file}")
    return 0


def _entry(options: argparse.Namespace) -> dict[str, Any]:
    kind = options.type or ("http" if options.url else "stdio")
    if options.url:
        entry: dict[str, Any] = {"type": kind, "url": options.url}
    else:
        entry = {"type": kind, "command": options.program[0], "args": options.program[1:]}
    if options.env:
        entry["env"] = dict(_pair(text, "=") for text in options.env)
    if options.header:
        entry["headers"] = dict(_pair(text, ":") for text in options.header)
    if options.timeout:
        entry["timeout"] = int(options.timeout * 1000)
    if options.always_load:
        entry["alwaysLoad"] = True
    return entry


def _pair(text: str, sign: str) -> tuple[str, str]:
    name, found, value = text.partition(sign)
    if not found or not name.strip():
        raise ValueError(f"`{text}` is not NAME{sign}VALUE")
    return name.strip(), value.strip()


def _remove(options: argparse.Namespace) -> int:
    from wieldy.schema.json_positions import parse_json

    removed = []
    for scope in (options.scope,) if options.scope else ("local", "project", "user"):
        file = _file(scope, options.root)
        if not file.exists():
            continue
        servers = parse_json(file.read_text("utf-8"), relaxed=True).value.get("mcpServers")
        if isinstance(servers, dict) and options.name in servers:
            set_value(file, "mcpServers", {name: entry for name, entry in servers.items() if name != options.name})
            removed.append(str(file))
    if not removed:
        where = f"{FOLDER}/{LOCAL}, {FOLDER}/{SHARED} or your own settings"
        return _wrong(f"no server `{options.name}` in {where}; one of .mcp.json is removed there", code=1)
    print(f"removed {options.name} from {', '.join(removed)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    rows = asyncio.run(_rows(options.root))
    if options.json:
        print(json.dumps(rows, ensure_ascii=False, indent=2))
    elif not rows:
        print("no MCP server is configured; `wieldy mcp add --help` shows how")
    else:
        print("\n".join(_line(row) for row in rows))
    return 0


def _get(options: argparse.Namespace) -> int:
    rows = [row for row in asyncio.run(_rows(options.root, options.name)) if row["name"] == options.name]
    if not rows:
        return _unknown(options.name, options.root)
    if options.json:
        print(json.dumps(rows[0], ensure_ascii=False, indent=2))
        return 0
    row = rows[0]
    print(_line(row))
    for title in ("tools", "quarantined", "prompts"):
        if row[title]:
            print(f"\n{title}:")
            print("\n".join(f"  {name:<40} {about}" for name, about in row[title].items()))
    if row["stderr"]:
        print(f"\nits last words:\n{row['stderr']}")
    return 0


def _reconnect(options: argparse.Namespace) -> int:
    rows = [row for row in asyncio.run(_rows(options.root, options.name)) if row["name"] == options.name]
    if not rows:
        return _unknown(options.name, options.root)
    print(_line(rows[0]))
    return 0 if rows[0]["state"] == "ready" else 1


async def _rows(root: str, only: str | None = None) -> list[dict[str, Any]]:
    """Connect to the servers, all side by side, and describe them."""
    async with Toolbox(root=root, load_settings=True) as box:
        if not (box.settings.get("mcpServers") or box.settings.pending):
            return []
        from wieldy.mcp.client.manager import McpServers

        servers = box.workspace.service(McpServers)
        with waiting_told(servers, only):
            await servers.wait_settled(PATIENCE, only)
        if only is not None and only in servers.connections:
            await _signed_in(servers.connections[only])
        for problem in servers.problems:
            print(f"wieldy: {problem}", file=sys.stderr)
        from wieldy.mcp.client.prompts import list_prompts

        prompts = await list_prompts(servers)
        return [_row(servers, name, prompts.values()) for name in servers.states()]


@contextmanager
def waiting_told(servers: McpServers, only: str | None = None) -> Iterator[None]:
    """Somebody who waits at a terminal is told for whom."""

    def tell() -> None:
        late = [name for name in servers.connecting() if only in (None, name)]
        if late and sys.stderr.isatty():
            print(f"waiting for {', '.join(late)} …", file=sys.stderr)

    timer = asyncio.get_running_loop().call_later(IMPATIENCE, tell)
    try:
        yield
    finally:
        timer.cancel()


async def _signed_in(connection: Any) -> None:
    """Where the server wants a person to sign in, show where and wait for it."""
    if connection.state.name == "needs approval" and sys.stdin.isatty():
        import webbrowser

        print(connection.state.why, file=sys.stderr)
        await asyncio.to_thread(webbrowser.open, connection.state.why.rpartition(" ")[2])
        await connection.wait_signed_in()


def _row(servers: McpServers, name: str, prompts: Iterable[ServerPrompt]) -> dict[str, Any]:
    state = servers.states()[name]
    entry = servers.servers.get(name)
    return {
        "name": name,
        "where": entry.connection.config.where if entry else "",
        "state": state.name,
        "why": state.why,
        "tools": {wire: _first(tool.description) for wire, tool in sorted(entry.tools.items())} if entry else {},
        "quarantined": dict(entry.quarantined) if entry else {},
        "prompts": {prompt.usage: _first(prompt.description) for prompt in prompts if prompt.server == name},
        "stderr": entry.connection.stderr.last_lines(10) if entry else "",
    }


def _first(text: str) -> str:
    line = " ".join(text.split())
    return truncate(line, 80)


def _line(row: dict[str, Any]) -> str:
    sign = {"ready": "✓", "needs approval": "?"}.get(row["state"], "✗")
    about = f"{row['state']}: {row['why']}".rstrip(": ")
    if row["state"] == "ready":
        about = f"{len(row['tools'])} tools" + (f", {len(row['prompts'])} prompts" if row["prompts"] else "")
    return f"{sign} {row['name']:<16} {about}" + (f"   {row['where']}" if row["where"] else "")


def _unknown(name: str, root: str) -> int:
    from wieldy.engine.pipeline import nearest

    configured = Toolbox(root=root, load_settings=True).settings.get("mcpServers", {})
    near = nearest(name, list(configured))
    hint = f" Did you mean `{near[0]}`?" if near else " `wieldy mcp list` lists them."
    return _wrong(f"there is no MCP server `{name}`.{hint}", code=1)


def _wrong(text: str, code: int = 2) -> int:
    print(f"wieldy: {text}", file=sys.stderr)
    return code
