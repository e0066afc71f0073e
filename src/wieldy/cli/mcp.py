"""`wieldy mcp`: manage the MCP servers of this folder, and serve wieldy's own tools."""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeAlias

from wieldy.cli.arguments import (
    add_mode,
    add_root,
    add_subcommand,
    amount,
    checked,
    command_parser,
    print_settings_problems,
)
from wieldy.cli.signals import SignalHandler
from wieldy.core.console import print_error, write, write_error, write_json
from wieldy.core.state_dirs import user_home
from wieldy.core.text import truncate_line
from wieldy.core.threads import in_thread
from wieldy.engine.services import Ask
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices
from wieldy.policy.settings.sources import FOLDER, LOCAL, SHARED, find_project_root
from wieldy.policy.settings.store import remove_value, set_value, settings_files
from wieldy.shell.running.process_tag import TAG_VARIABLE

if TYPE_CHECKING:
    from wieldy.faces.mcp_server.http import Address
    from wieldy.faces.mcp_server.server import MakeToolbox
    from wieldy.mcp.connection import Connection
    from wieldy.mcp.manager import McpServers, ServerReport
    from wieldy.mcp.resources import ServerPrompt

EXAMPLES = """examples:
  wieldy mcp add files -- npx -y @modelcontextprotocol/server-filesystem .
  wieldy mcp add docs https://example.org/mcp --header 'Authorization: Bearer ${DOCS_TOKEN}'
  wieldy mcp add db --scope user --env URL='${DATABASE_URL}' -- my-server --read-only
  wieldy mcp list               every server and its state
  wieldy mcp get files          one server: its tools, prompts and last output
  wieldy mcp reconnect files    connect again and report the result
  wieldy mcp remove files
  wieldy mcp serve --help       serve wieldy's own tools to other programs"""

Described: TypeAlias = "tuple[ServerReport, dict[str, Any]]"
"""A server, and the object that `--json` prints of it."""

SERVER_NAME = re.compile(r"[A-Za-z0-9_-]{1,40}")
SCOPES = ("local", "project", "user")
CONNECT_SECONDS = 60.0
REPORT_AFTER_SECONDS = 2.0


def main(command: str, argv: list[str]) -> int:
    if argv[:1] == ["serve"]:
        return serve_main(argv[1:])
    words, program = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = _parser()
    options, extra = parser.parse_known_args(words)
    if options.subcommand == "add" and not program and (extra or (options.url and "://" not in options.url)):
        line = " ".join(filter(None, (options.url, *extra)))
        return _fail(f"put a command line after `--`: wieldy mcp add {options.name} -- {line}")
    if extra:
        parser.error(f"unknown option {extra[0]}")
    options.program = program
    subcommands = {"add": _add, "remove": _remove, "list": _list, "get": _get, "reconnect": _reconnect}
    return subcommands[options.subcommand](options)


def _parser() -> argparse.ArgumentParser:
    parser = command_parser("wieldy mcp", "Manage the MCP servers whose tools are offered in this folder.", EXAMPLES)
    subcommands = parser.add_subparsers(
        dest="subcommand", required=True, metavar="add | remove | list | get | reconnect | serve"
    )

    def subcommand(name: str, about: str, example: str, *, takes_name: bool = True) -> argparse.ArgumentParser:
        subparser = add_subcommand(subcommands, name, about, f"mcp {example}")
        if takes_name:
            subparser.add_argument("name", metavar="NAME")
        add_root(subparser, "the folder")
        return subparser

    add = subcommand("add", "add a server: a URL, or a command line after `--`", "add files -- npx -y my-server .")
    add.add_argument("url", metavar="URL", nargs="?")
    add.add_argument("--scope", choices=SCOPES, default="local", help="the settings to add it to (default: local)")
    add.add_argument("--type", choices=("stdio", "http", "sse"), help="the transport (default: http for a URL)")
    add.add_argument(
        "--env", action="append", default=[], metavar="NAME=VALUE", help="may contain ${VAR} or ${VAR:-default}"
    )
    add.add_argument("--header", action="append", default=[], metavar="'NAME: VALUE'")
    add.add_argument("--timeout", type=amount, metavar="SECONDS", help="the time limit of each call (default: 300)")
    add.add_argument("--always-load", action="store_true", help="always send its tools with their schemas")
    remove = subcommand("remove", "remove a server from the settings", "remove files")
    remove.add_argument("--scope", choices=SCOPES, help="only from these settings (default: all)")
    listing = subcommand("list", "list every server and its state", "list --json", takes_name=False)
    listing.add_argument("--json", action="store_true", help="print a list of objects")
    get = subcommand("get", "show one server with its tools and prompts", "get files")
    get.add_argument("--json", action="store_true", help="print an object")
    subcommand("reconnect", "connect to a server now and report the result", "reconnect files")
    subcommands.add_parser("serve", help="serve wieldy's own tools to MCP clients; see `wieldy mcp serve --help`")
    return parser


def _add(options: argparse.Namespace) -> int:
    from wieldy.mcp.config import InvalidServer, parse_server
    from wieldy.policy.settings.consent import ConsentItem, FileDigests, Trust

    if not SERVER_NAME.fullmatch(options.name):
        return _fail(f"`{options.name}` cannot be the name of a server: use letters, digits, `-` and `_`")
    if bool(options.url) == bool(options.program):
        return _fail("give either a URL or, after `--`, a command line")
    try:
        entry = _settings_entry(options)
        parse_server(options.name, entry)
    except (InvalidServer, ValueError) as error:
        return _fail(str(error))
    file = settings_files(options.root)[options.scope]
    set_value(file, f"mcpServers.{options.name}", entry)
    # Typing the command is consent to what it adds.
    root = find_project_root(options.root)
    named = FileDigests(root, str(user_home())).named_in(("mcpServers", options.name), entry, is_shared=True)
    Trust().accept(root, [ConsentItem.for_value(f"mcpServers.{options.name}", entry, files=named)])
    write(f"{options.name} → {file}")
    return 0


def _settings_entry(options: argparse.Namespace) -> dict[str, Any]:
    kind = options.type or ("http" if options.url else "stdio")
    if options.url:
        entry: dict[str, Any] = {"type": kind, "url": options.url}
    else:
        entry = {"type": kind, "command": options.program[0], "args": options.program[1:]}
    if options.env:
        entry["env"] = dict(_split_pair(text, "=") for text in options.env)
    if options.header:
        entry["headers"] = dict(_split_pair(text, ":") for text in options.header)
    if options.timeout:
        entry["timeout"] = int(options.timeout * 1000)
    if options.always_load:
        entry["alwaysLoad"] = True
    return entry


def _split_pair(text: str, separator: str) -> tuple[str, str]:
    name, separator_found, value = text.partition(separator)
    if not separator_found or not name.strip():
        raise ValueError(f"`{text}` is not NAME{separator}VALUE")
    return name.strip(), value.strip()


def _remove(options: argparse.Namespace) -> int:
    scopes = (options.scope,) if options.scope else SCOPES
    candidates = settings_files(options.root)
    files = [
        str(candidates[scope]) for scope in scopes if remove_value(candidates[scope], ("mcpServers", options.name))
    ]
    if not files:
        places = f"{FOLDER}/{LOCAL}, {FOLDER}/{SHARED} or your own settings"
        return _fail(f"no server `{options.name}` in {places}; edit .mcp.json to remove one from there", code=1)
    write(f"removed {options.name} from {', '.join(files)}")
    return 0


def _list(options: argparse.Namespace) -> int:
    rows = asyncio.run(_describe_servers(options.root))
    if options.json:
        write_json([row for _, row in rows])
    elif not rows:
        write("no MCP server is configured; `wieldy mcp add --help` shows how")
    else:
        write("\n".join(_format_line(*each) for each in rows))
    return 0


def _get(options: argparse.Namespace) -> int:
    described = _describe_server(options)
    if described is None:
        return _report_unknown(options.name, options.root)
    report, row = described
    if options.json:
        write_json(row)
        return 0
    write(_format_line(report, row))
    for title in ("tools", "quarantined", "prompts"):
        if row[title]:
            write(f"\n{title}:")
            write("\n".join(f"  {name:<40} {about}" for name, about in row[title].items()))
    if row["stderr"]:
        write(f"\nlast output on stderr:\n{row['stderr']}")
    return 0


def _reconnect(options: argparse.Namespace) -> int:
    described = _describe_server(options, sign_in=True)
    if described is None:
        return _report_unknown(options.name, options.root)
    report, row = described
    write(_format_line(report, row))
    return 0 if report.state == "ready" else 1


def _describe_server(options: argparse.Namespace, *, sign_in: bool = False) -> Described | None:
    rows = asyncio.run(_describe_servers(options.root, options.name, sign_in=sign_in))
    return next((each for each in rows if each[0].name == options.name), None)


async def _describe_servers(root: str, only: str = "", *, sign_in: bool = False) -> list[Described]:
    """Connect to the servers, or to one, and describe all. With `sign_in` begin the sign-in that it requires."""
    async with Toolbox(root=root, load_settings=True, wait_for_servers=0) as box:
        print_settings_problems(box)
        if not (box.settings.get("mcpServers") or box.settings.pending):
            return []
        from wieldy.mcp.resources import list_prompts

        servers = box.workspace.services.mcp_servers
        with show_waiting(servers, only or None):
            await servers.wait_settled(CONNECT_SECONDS, only or None)
        if sign_in and only in servers.connections:
            await _sign_in(servers.connections[only])
        for problem in servers.problems:
            print_error(problem)
        prompts = await list_prompts(servers)
        return [(report, _as_json(report, prompts)) for report in servers.reports().values()]


@contextmanager
def show_waiting(servers: McpServers, only: str | None = None) -> Iterator[None]:
    """Name the servers that keep a person at a terminal waiting."""

    def show() -> None:
        late = [name for name in servers.connecting() if only in (None, name)]
        if late and sys.stderr.isatty():
            write_error(f"waiting for {', '.join(late)} …")

    timer = asyncio.get_running_loop().call_later(REPORT_AFTER_SECONDS, show)
    try:
        yield
    finally:
        timer.cancel()


async def _sign_in(connection: Connection) -> None:
    """If the server requires a sign-in, begin it, open its page and wait."""
    if connection.state.name != "needs approval":
        return
    connection.reconnect(sign_in=True)
    await connection.wait_settled()
    if connection.state.name == "needs approval" and sys.stdin.isatty():
        import webbrowser

        write_error(connection.state.why)
        await in_thread(webbrowser.open, connection.state.why.rpartition(" ")[2])
        await connection.wait_signed_in()


def _as_json(report: ServerReport, prompts: dict[str, ServerPrompt]) -> dict[str, Any]:
    own_prompts = [prompt for prompt in prompts.values() if prompt.server == report.name]
    return {
        "name": report.name,
        "where": report.where,
        "state": report.state,
        "why": report.problem,
        "tools": {wire: truncate_line(tool.description, 80) for wire, tool in report.tools.items()},
        "quarantined": dict(report.left_out),
        "prompts": {prompt.usage: truncate_line(prompt.description, 80) for prompt in own_prompts},
        "stderr": report.stderr,
    }


def _format_line(report: ServerReport, row: dict[str, Any]) -> str:
    sign = {"ready": "✓", "needs approval": "?"}.get(report.state, "✗")
    about = report.summary(len(row["prompts"]))
    return f"{sign} {report.name:<16} {about}" + (f"   {report.where}" if report.where else "")


def _report_unknown(name: str, root: str) -> int:
    from wieldy.core.text import nearest_name

    configured = Toolbox(root=root, load_settings=True).settings.get("mcpServers")
    near = nearest_name(name, configured)
    hint = f" Did you mean `{near}`?" if near else " `wieldy mcp list` lists them."
    return _fail(f"there is no MCP server `{name}`.{hint}", code=1)


def _fail(text: str, code: int = 2) -> int:
    print_error(text)
    return code


SERVE_EXAMPLES = """examples:
  wieldy mcp serve                                     one client, on stdin and stdout
  wieldy mcp serve --root ~/project --mode acceptEdits
  WIELDY_MCP_TOKEN=… wieldy mcp serve --http 8931      many clients, at http://127.0.0.1:8931/mcp
  wieldy mcp serve --http 8931 --no-token              the same for everybody on this machine

Permission questions are asked through the client (elicitation). If the client cannot ask its user, the call is denied."""

TOKEN_VARIABLE = "WIELDY_MCP_TOKEN"
MAX_NESTING = 2


def serve_main(argv: list[str]) -> int:
    parser = create_parser()
    options = parser.parse_args(argv)
    # Removed from the environment: commands that tools run must not inherit the token.
    variable = os.environ.pop(TOKEN_VARIABLE, "")
    token = options.token or variable or None
    if options.no_token and (options.token or options.http is None):
        parser.error("--no-token is for --http without --token")
    token = None if options.no_token else token
    if options.http is not None and (problem := check_exposure(options.http, token, no_token=options.no_token)):
        parser.error(problem)
    make_toolbox = _toolbox_factory(options)
    with SignalHandler() as signals:
        asyncio.run(_serve(make_toolbox, options, token, signals))
    return signals.exit_code or 0


def create_parser() -> argparse.ArgumentParser:
    parser = command_parser(
        "wieldy mcp serve",
        "Serve every tool to MCP clients. Calls are checked, permitted and undoable as everywhere else.",
        SERVE_EXAMPLES,
        allow_abbrev=False,
    )
    add_root(parser)
    add_mode(parser)
    parser.add_argument("--servers", action="store_true", help="also serve the tools of MCP servers in your settings")
    parser.add_argument("--http", type=_address, metavar="HOST:PORT", help="serve over HTTP (default host: 127.0.0.1)")
    parser.add_argument("--token", help=f"the bearer token HTTP clients must send; better set {TOKEN_VARIABLE}")
    parser.add_argument(
        "--no-token",
        action="store_true",
        help="let every program and user of this machine call the tools (loopback only)",
    )
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="another host name clients may use"
    )
    return parser


@checked
def _address(text: str) -> Address:
    from wieldy.faces.mcp_server.http import parse_address

    return parse_address(text)


def check_exposure(address: Address, token: str | None, *, no_token: bool = False) -> str | None:
    """Return why it would be unsafe to listen on an address; None if it is safe."""
    from wieldy.faces.mcp_server.http import check_token

    problem = check_token(address, token, required=not no_token)
    if problem is None or token is not None:
        return problem
    way_out = "" if no_token or not address.is_loopback else ", or --no-token to let everybody on this machine in"
    return f"{problem}: put it in {TOKEN_VARIABLE} (or --token){way_out}"


def _toolbox_factory(options: argparse.Namespace) -> MakeToolbox:
    # A server of the settings may be this very program: do not start servers from a server that was started by one.
    is_nested = len(os.environ.get(TAG_VARIABLE, "").split()) >= MAX_NESTING
    if options.servers and is_nested:
        print_error("--servers is left out: this server was started by one that serves on others")

    def make_toolbox(ask: Ask, host: HostServices) -> Toolbox:
        servers = options.servers and not is_nested
        box = Toolbox(
            options.root,
            mode=options.mode,
            ask=ask,
            load_settings=True,
            servers=servers,
            wait_for_servers=0,
            host=host,
        )
        box.settings.require_rules()
        for problem in (*box.settings.errors, *box.settings.warnings, *box.hook_problems):
            print_error(str(problem))
        return box

    return make_toolbox


async def _serve(
    make_toolbox: MakeToolbox, options: argparse.Namespace, token: str | None, signals: SignalHandler
) -> None:
    """Serve until the client leaves or a signal comes."""
    from wieldy.faces.mcp_server import serve_mcp

    stop = asyncio.Event()
    signals.call_on_signal(lambda reason: stop.set())

    if options.http is None and sys.stdin.isatty():
        print_error("waiting for an MCP client on stdin; Ctrl-C ends it, --http serves over HTTP")
    await serve_mcp(
        make_toolbox,
        http=options.http,
        token=token,
        allow_hosts=options.allow_host,
        on_ready=lambda url: print_error(f"serving MCP at {url}"),
        stop=stop,
    )
