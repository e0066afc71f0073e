"""`wieldy demo`: the tools at work on a bundled sample project."""

from __future__ import annotations

import argparse
import asyncio


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy demo`."""
    parser = argparse.ArgumentParser(
        prog="wieldy demo",
        description="A recorded model works on a copy of a bundled sample project with the real tools: no key, no network.",
        epilog="example:\n  wieldy demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    from wieldy.demo.show import show

    return asyncio.run(show())
