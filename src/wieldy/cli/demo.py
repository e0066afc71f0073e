"""`wieldy demo`: watch the tools at work on a bundled sample project."""

from __future__ import annotations

import asyncio

from wieldy.cli.arguments import command_parser


def main(command: str, argv: list[str]) -> int:
    parser = command_parser(
        "wieldy demo",
        "A recorded model fixes a copy of a bundled sample project with the real tools: no key, no network.",
        "example:\n  wieldy demo",
    )
    parser.parse_args(argv)
    from wieldy.faces.terminal.demo import show

    return asyncio.run(show())
