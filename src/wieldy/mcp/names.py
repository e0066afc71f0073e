"""Names that every provider accepts: `mcp__server__tool`, at most 64 characters, the same from one run to the next."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping

MOST = 64
DIGITS = 8

_ODD = re.compile(r"[^A-Za-z0-9_-]")
_RUN = re.compile(r"_{2,}")


def server_keys(names: Iterable[str]) -> dict[str, str]:
    """The part of a tool's name that stands for each server; no two are alike."""
    keys: dict[str, str] = {}
    taken: set[str] = set()
    for name in sorted(names, key=lambda name: (_server(name) != name, name)):
        key = _server(name)
        if key in taken or not key or len(key) > 30:
            key = f"{key[:20]}_{_digest(name)}".lstrip("_")
        taken.add(key)
        keys[name] = key
    return keys


def wire_names(server: str, tools: Iterable[str]) -> Mapping[str, str]:
    """Each tool's own name → the name a model calls it by. A name that needs no change is never changed by another."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for tool in sorted(set(tools), key=lambda tool: (_ODD.search(tool) is not None, tool)):
        plain = f"mcp__{server}__{_ODD.sub('_', tool)}"
        if len(plain) > MOST or plain in taken:
            plain = f"{plain[: MOST - DIGITS - 1]}_{_digest(tool)}"
        taken.add(plain)
        names[tool] = plain
    return names


def _server(name: str) -> str:
    return _RUN.sub("_", _ODD.sub("_", name)).strip("_")


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGITS]
