"""What a project's own settings ask for, item by item, and the settings that are left while some of it waits for consent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from wieldy.permissions.trust import ConsentItem
from wieldy.settings.check import dotted, leaves
from wieldy.settings.sources import SettingsSource


def wanted(source: SettingsSource) -> Iterator[ConsentItem]:
    """Everything in a project's file that takes effect only after the user has seen it."""
    for path, key, value in leaves(source.values):
        if key is None or not key.free:
            yield from (one for _, one in _items(source, path, value))


def without(source: SettingsSource, pending: Collection[ConsentItem]) -> SettingsSource:
    """The source with the pending items left out."""
    held = {one.digest for one in pending}
    values: dict[str, Any] = {}
    for path, key, value in leaves(source.values):
        kept = value if key is not None and key.free else _kept(source, path, value, held)
        if kept is not None:
            section = values
            for name in path[:-1]:
                section = section.setdefault(name, {})
            section[path[-1]] = kept
    return replace(source, values=values)


def _kept(source: SettingsSource, path: tuple[str, ...], value: Any, held: set[str]) -> Any:
    passing = [at for at, one in _items(source, path, value) if one.digest not in held]
    if isinstance(value, list):
        return [value[at] for at in passing] or None
    if isinstance(value, Mapping):
        return {name: value[name] for name in passing} or None
    return value if passing else None


def _items(source: SettingsSource, path: tuple[str, ...], value: Any) -> Iterator[tuple[Any, ConsentItem]]:
    name = dotted(path)
    if isinstance(value, list):
        for at, (one, origin) in enumerate(source.items(path)):
            yield at, ConsentItem.for_value(name, one, str(origin))
    elif isinstance(value, Mapping):
        for member, one in value.items():
            yield member, ConsentItem.for_value(f"{name}.{member}", one, str(source.origin((*path, member))))
    else:
        yield None, ConsentItem.for_value(name, value, str(source.origin(path)))
