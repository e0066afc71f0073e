"""The outline of a command line as shfmt parses it: a third opinion on our two parsers."""

from __future__ import annotations

import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from functools import cache
from typing import Any

from wieldy.shell.parsing.cross_check import Entry, Span

_SECONDS = 5.0


def shfmt_outline(text: str) -> list[Entry] | None:
    """The same entries as `cross_check.outline`; None where shfmt is missing or finds an error."""
    program = _program()
    if program is None:
        return None
    from msgspec import DecodeError
    from msgspec.json import decode

    try:
        done = subprocess.run(
            [program, "-ln=bash", "--to-json"],
            input=text.encode("utf-8", "surrogatepass"),
            capture_output=True,
            timeout=_SECONDS,
            check=True,
        )
        return sorted(_entries(decode(done.stdout)))
    except (OSError, subprocess.SubprocessError, DecodeError, RecursionError):
        return None


@cache
def _program() -> str | None:
    beside = os.path.join(sysconfig.get_path("scripts"), "shfmt")
    return beside if os.access(beside, os.X_OK) else shutil.which("shfmt")


def _entries(tree: Any) -> Iterator[Entry]:
    """Walk without recursion: a chain of a thousand commands is a tree a thousand deep."""
    waiting = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, list):
            waiting.extend(node)
        elif isinstance(node, dict):
            yield from _own_entries(node)
            waiting.extend(
                value for key, value in node.items() if key not in ("Pos", "End") and isinstance(value, dict | list)
            )


def _own_entries(node: dict[str, Any]) -> Iterator[Entry]:
    kind = node.get("Type")
    if kind == "CallExpr":
        if args := node.get("Args"):
            yield "call", tuple(map(_span, args))
        for one in node.get("Assigns") or ():
            yield "assign", (_span(one),)
    elif kind == "DeclClause":
        yield "call", (_span(node["Variant"]), *map(_span, node.get("Args") or ()))
    elif kind == "LetClause":
        # Arithmetic that runs as a command: our grammar sees a call, so the two can never agree.
        yield "let", ()
    for redirect in node.get("Redirs") or ():
        if body := redirect.get("Hdoc"):
            start, _ = _span(body)
            yield redirect["Op"], ((start, start),)
        else:
            yield redirect["Op"], (_span(redirect["Word"]),)


def _span(node: Any) -> Span:
    return node["Pos"].get("Offset", 0), node["End"].get("Offset", 0)
