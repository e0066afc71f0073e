"""`wieldy mcp serve`: serve our tools to MCP clients, over stdin and stdout or HTTP."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from wieldy.cli.arguments import add_mode, add_root, command_parser
from wieldy.core.console import print_error
from wieldy.engine.approval import Ask
from wieldy.engine.toolbox import Toolbox
from wieldy.engine.workspace_services import HostServices
from wieldy.shell.running.process_tag import TAG_VARIABLE

if TYPE_CHECKING:
    from wieldy.faces.mcp_server.client_session import MakeToolbox
    from wieldy.faces.mcp_server.http import Address

EXAMPLES = """examples:
  wieldy mcp serve                                     one client, on stdin and stdout
  wieldy mcp serve --root ~/project --mode acceptEdits
  WIELDY_MCP_TOKEN=… wieldy mcp serve --http 8931      many clients, at http://127.0.0.1:8931/mcp
  wieldy mcp serve --http 8931 --no-token              the same for everybody on this machine

Permission questions are asked through the client (elicitation). If the client cannot ask its user, the call is denied."""

TOKEN_VARIABLE = "WIELDY_MCP_TOKEN"
MAX_NESTING = 2


def main(argv: list[str]) -> int:
    """Run `wieldy mcp serve`."""
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
    return asyncio.run(_run_until_signal(lambda stop: _serve(make_toolbox, options, token, stop)))


def create_parser() -> argparse.ArgumentParser:
    """Return the parser of `wieldy mcp serve`."""
    parser = command_parser(
        "wieldy mcp serve",
        "Serve every tool to MCP clients. Calls are checked, permitted and undoable as everywhere else.",
        EXAMPLES,
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


def _address(text: str) -> Address:
    from wieldy.faces.mcp_server.http import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


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
        box = Toolbox(options.root, mode=options.mode, ask=ask, load_settings=True, servers=servers, host=host)
        box.settings.require_rules()
        for problem in (*box.settings.errors, *box.settings.warnings, *box.hook_problems):
            print_error(str(problem))
        return box

    return make_toolbox


async def _serve(
    make_toolbox: MakeToolbox, options: argparse.Namespace, token: str | None, stop: asyncio.Event
) -> None:
    from wieldy.faces.mcp_server.serve import serve_mcp

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


async def _run_until_signal(serve: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Serve until the client leaves or a signal comes; return the exit code when everything is closed."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    signals: list[int] = []

    def handle(number: int) -> None:
        signals.append(number)
        stop.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # ignored under nohup
            loop.add_signal_handler(number, handle, number)
    await serve(stop)
    return 128 + signals[0] if signals else 0
