"""`wieldy mcp serve`: our tools to any MCP client, over stdin and stdout or HTTP."""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from wieldy.approval import Ask
from wieldy.mcp.server.http import SHORTEST_TOKEN, Address, address
from wieldy.permissions.modes import find_mode
from wieldy.shell.running.process_tag import TAG_VARIABLE
from wieldy.toolbox import Toolbox

if TYPE_CHECKING:
    import anyio


EXAMPLES = """examples:
  wieldy mcp serve                                     one client, on stdin and stdout
  wieldy mcp serve --root ~/project --mode acceptEdits
  wieldy mcp serve --http 127.0.0.1:8931               many clients, at http://127.0.0.1:8931/mcp
  WIELDY_MCP_TOKEN=… wieldy mcp serve --http 0.0.0.0:8931

What your permission rules would ask about is asked through the client (elicitation); a client that cannot ask gets a no."""

TOKEN_VARIABLE = "WIELDY_MCP_TOKEN"
DEEPEST = 2


def main(argv: list[str], kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> int:
    """Run `wieldy mcp serve`; `kind` is the parser that complains."""
    parser = _parser(kind)
    options = parser.parse_args(argv)
    # What tools run inherits the environment, and has no business with the token.
    where, token = options.http, options.token or os.environ.pop(TOKEN_VARIABLE, "") or None
    if where is not None and (problem := exposure(where, token)):
        parser.error(problem)
    if not os.path.isdir(options.root):
        parser.error(f"{options.root} is not a folder")
    make = _maker(options)
    if where is None:
        return asyncio.run(_until_told(lambda told: _on_stdio(make, told)))
    return asyncio.run(_until_told(lambda told: _on_http(make, where, token, options.allow_host, told)))


def exposure(where: Address, token: str | None) -> str | None:
    """Why an address may not be listened on, if so."""
    if where.is_loopback and token is None:
        return None
    if token is None:
        return (
            f"{where.host} can be reached by other machines: set a token of at least {SHORTEST_TOKEN} characters "
            f"in {TOKEN_VARIABLE} (or --token), or listen on 127.0.0.1"
        )
    if len(token) < SHORTEST_TOKEN or not token.isascii() or not token.isprintable() or " " in token:
        return f"the token must be at least {SHORTEST_TOKEN} plain characters without spaces"
    return None


def _parser(kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    parser = kind(
        prog="wieldy mcp serve",
        description="Serve every tool to MCP clients: checked, allowed or asked about, run, and undoable.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--root", default=".", metavar="DIR", help="the folder to work in (default: this one)")
    parser.add_argument("--mode", type=_mode, help="default, acceptEdits, plan, dontAsk or bypassPermissions")
    parser.add_argument("--servers", action="store_true", help="also the tools of the MCP servers in your settings")
    parser.add_argument(
        "--http", type=_address, metavar="HOST:PORT", help="serve over HTTP; without a host, this machine alone"
    )
    parser.add_argument("--token", help=f"the bearer token HTTP clients must send; better put it in {TOKEN_VARIABLE}")
    parser.add_argument(
        "--allow-host", action="append", default=[], metavar="NAME", help="one more host name clients may use"
    )
    return parser


def _address(text: str) -> Address:
    try:
        return address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _mode(text: str) -> str:
    try:
        return find_mode(text).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _maker(options: argparse.Namespace) -> Callable[[Ask], Toolbox]:
    servers = options.servers and not _is_nested(os.environ)
    if options.servers and not servers:
        _say("--servers is left out: this server was started by one that serves on others")

    def make(ask: Ask) -> Toolbox:
        box = Toolbox(options.root, mode=options.mode, ask=ask, load_settings=True, servers=servers)
        for problem in (*box.settings.errors, *box.settings.warnings, *box.hook_problems):
            _say(str(problem))
        return box

    return make


def _is_nested(env: Mapping[str, str]) -> bool:
    """Whether one that serves on others has started us: servers of the settings may be this very program, without end."""
    return len(env.get(TAG_VARIABLE, "").split()) >= DEEPEST


async def _on_stdio(make: Callable[[Ask], Toolbox], told: asyncio.Event) -> None:
    import anyio

    from wieldy.mcp.server.client_session import Room
    from wieldy.mcp.server.server import OneRoom, Service
    from wieldy.mcp.server.stdio import serve_stdio

    if sys.stdin.isatty():
        _say("waiting for an MCP client on stdin; Ctrl-C ends it, --http serves over HTTP")
    room = Room(make)
    try:
        await room.open()
        async with anyio.create_task_group() as group:
            group.start_soon(_cancel_when, told, group.cancel_scope)
            await serve_stdio(Service(OneRoom(room)).server())
            group.cancel_scope.cancel()
    finally:
        await room.aclose()


async def _cancel_when(told: asyncio.Event, scope: anyio.CancelScope) -> None:
    await told.wait()
    scope.cancel()


async def _on_http(
    make: Callable[[Ask], Toolbox], where: Address, token: str | None, hosts: list[str], told: asyncio.Event
) -> None:
    from wieldy.mcp.server.client_session import ManyRooms
    from wieldy.mcp.server.http import PATH, serve_http

    await serve_http(
        ManyRooms(make),
        where,
        told,
        token=token,
        hosts=hosts,
        ready=lambda found: _say(f"serving MCP at http://{found}{PATH}"),
    )


async def _until_told(work: Callable[[asyncio.Event], Awaitable[None]]) -> int:
    """Work until it ends or a signal ends it; either way everything is closed before this returns."""
    loop = asyncio.get_running_loop()
    told = asyncio.Event()
    tag_numbers: list[int] = []

    def stop(number: int) -> None:
        tag_numbers.append(number)
        told.set()

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # as under nohup
            loop.add_signal_handler(number, stop, number)
    await work(told)
    return 128 + tag_numbers[0] if tag_numbers else 0


def _say(text: str) -> None:
    print(f"wieldy: {text}", file=sys.stderr, flush=True)
