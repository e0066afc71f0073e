"""Several sources made into one: lists join, the strongest source wins elsewhere, and each value keeps its origin."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from wieldy.permissions.origin import Origin
from wieldy.settings.source import Source

# Members of these are taken whole: half of one server and half of another would be a third that nobody meant.
WHOLE = {("mcpServers",)}


def merged(sources: Sequence[Source]) -> tuple[dict[str, Any], dict[str, Origin]]:
    """Values and their origins by dotted name, from sources given strongest first."""
    values: dict[str, Any] = {}
    origins: dict[str, Origin] = {}
    for source in sources:
        _add(values, source.values, (), source, origins)
    return values, origins


def _add(
    into: dict[str, Any], values: Mapping[str, Any], path: tuple[str, ...], source: Source, origins: dict[str, Origin]
) -> None:
    for name, value in values.items():
        here = (*path, str(name))
        held = into.get(name)
        if name not in into:
            into[name] = _copied(value)
            _record(value, here, source, origins)
        elif isinstance(held, dict) and isinstance(value, Mapping) and path not in WHOLE:
            _add(held, value, here, source, origins)
        elif isinstance(held, list) and isinstance(value, list):
            seen = {_fingerprint(item) for item in held}
            held += [item for item in value if _fingerprint(item) not in seen]


def _record(value: Any, path: tuple[str, ...], source: Source, origins: dict[str, Origin]) -> None:
    origins[".".join(path)] = source.origin(path)
    if isinstance(value, Mapping):
        for name, member in value.items():
            _record(member, (*path, str(name)), source, origins)


def _copied(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {name: _copied(member) for name, member in value.items()}
    return list(value) if isinstance(value, list | tuple) else value


def _fingerprint(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
