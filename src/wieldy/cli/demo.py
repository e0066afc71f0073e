"""`wieldy demo`: the tools at work on a bundled sample project."""

from __future__ import annotations

import argparse
import asyncio


def main(command: str, argv: list[str]) -> int:
    """Run `wieldy demo`."""
    parser = argparse.ArgumentParser(
        prog="wieldy demo",
        description="A scripted tour of the tools on a copy of a bundled sample project: no model, no key, no network.",
        epilog="example:\n  wieldy demo",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.parse_args(argv)
    from wieldy.demo.tour import tour

    return asyncio.run(tour())
