"""`wieldy mcp serve`: serve our tools to MCP clients, over stdin and stdout or HTTP."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from wieldy.approval import Ask
from wieldy.cli.arguments import add_mode, add_root, command_parser
from wieldy.console import print_error
from wieldy.shell.running.process_tag import TAG_VARIABLE
from wieldy.toolbox import Toolbox
from wieldy.workspace_services import HostServices

if TYPE_CHECKING:
    from wieldy.mcp.server.client_session import MakeToolbox
    from wieldy.mcp.server.http import Address

EXAMPLES = """examples:
  wieldy mcp serve                                     one client, on stdin and stdout
  wieldy mcp serve --root ~/project --mode acceptEdits
  wieldy mcp serve --http 127.0.0.1:8931               many clients, at http://127.0.0.1:8931/mcp
  WIELDY_MCP_TOKEN=… wieldy mcp serve --http 0.0.0.0:8931

Permission questions are asked through the client (elicitation). If the client cannot ask its user, the call is denied."""

TOKEN_VARIABLE = "WIELDY_MCP_TOKEN"
MIN_TOKEN_CHARS = 16
MAX_NESTING = 2


def main(argv: list[str]) -> int:
    """Run `wieldy mcp serve`."""
    parser = create_parser()
    options = parser.parse_args(argv)
    # Removed from the environment: commands that tools run must not inherit the token.
    token = options.token or os.environ.pop(TOKEN_VARIABLE, "") or None
    if options.http is not None and (problem := check_exposure(options.http, token)):
        parser.error(problem)
    make_toolbox = _toolbox_factory(options)
    if options.http is None:
        return asyncio.run(_run_until_signal(lambda stop: _serve_stdio(make_toolbox, stop)))
    return asyncio.run(
        _run_until_signal(lambda stop: _serve_http(make_toolbox, options.http, token, options.allow_host, stop))
    )


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
        "--allow-host", action="append", default=[], metavar="NAME", help="another host name clients may use"
    )
    return parser


def _address(text: str) -> Address:
    from wieldy.mcp.server.http import parse_address

    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def check_exposure(address: Address, token: str | None) -> str | None:
    """Return why it would be unsafe to listen on an address; None if it is safe."""
    if address.is_loopback and token is None:
        return None
    if token is None:
        return (
            f"{address.host} can be reached by other machines: set a token of at least {MIN_TOKEN_CHARS} characters "
            f"in {TOKEN_VARIABLE} (or --token), or listen on 127.0.0.1"
        )
    if len(token) < MIN_TOKEN_CHARS or not token.isascii() or not token.isprintable() or " " in token:
        return f"the token must be at least {MIN_TOKEN_CHARS} plain characters without spaces"
    return None


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


async def _serve_stdio(make_toolbox: MakeToolbox, stop: asyncio.Event) -> None:
    import anyio

    from wieldy.mcp.server.client_session import ClientSession
    from wieldy.mcp.server.server import RequestHandlers, SingleSession
    from wieldy.mcp.server.stdio import serve_stdio

    if sys.stdin.isatty():
        print_error("waiting for an MCP client on stdin; Ctrl-C ends it, --http serves over HTTP")
    session = ClientSession(make_toolbox)
    try:
        await session.open()
        async with anyio.create_task_group() as group:

            async def cancel_on_stop() -> None:
                await stop.wait()
                group.cancel_scope.cancel()

            group.start_soon(cancel_on_stop)
            await serve_stdio(RequestHandlers(SingleSession(session)).create_server())
            group.cancel_scope.cancel()
    finally:
        await session.aclose()


async def _serve_http(
    make_toolbox: MakeToolbox,
    address: Address,
    token: str | None,
    hosts: list[str],
    stop: asyncio.Event,
) -> None:
    from wieldy.mcp.server.http import PATH, serve_http
    from wieldy.mcp.server.session_pool import SessionPool

    def report(bound: Address) -> None:
        print_error(f"serving MCP at http://{bound}{PATH}")

    await serve_http(SessionPool(make_toolbox), address, stop, token=token, hosts=hosts, on_ready=report)


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
