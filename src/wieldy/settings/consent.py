"""What a project's settings ask for, item by item, and the settings without the items that wait for consent."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from msgspec.structs import replace

from wieldy.permissions.trust import ConsentItem
from wieldy.settings.check import dotted, leaves
from wieldy.settings.sources import SettingsSource


def consent_items(source: SettingsSource) -> Iterator[ConsentItem]:
    """Yield everything in a project's file that takes effect only after the user has seen it."""
    for path, key, value in leaves(source.values):
        if key is None or not key.project_may_set:
            yield from (item for _, item in _items(source, path, value))


def without_pending(source: SettingsSource, pending: Collection[ConsentItem]) -> SettingsSource:
    """Return the source without the pending items."""
    digests = {item.digest for item in pending}
    values: dict[str, Any] = {}
    for path, key, value in leaves(source.values):
        needs_consent = key is None or not key.project_may_set
        accepted = _without(source, path, value, digests) if needs_consent else value
        if accepted is not None:
            section = values
            for name in path[:-1]:
                section = section.setdefault(name, {})
            section[path[-1]] = accepted
    return replace(source, values=values)


def _without(source: SettingsSource, path: tuple[str, ...], value: Any, digests: set[str]) -> Any:
    accepted = [member for member, item in _items(source, path, value) if item.digest not in digests]
    if isinstance(value, list):
        return [value[index] for index in accepted] or None
    if isinstance(value, Mapping):
        return {name: value[name] for name in accepted} or None
    return value if accepted else None


def _items(source: SettingsSource, path: tuple[str, ...], value: Any) -> Iterator[tuple[Any, ConsentItem]]:
    """Yield the index or name of each member of a value, and its item; None for a scalar."""
    name = dotted(path)
    if isinstance(value, list):
        for index, (member, origin) in enumerate(source.items(path)):
            yield index, ConsentItem.for_value(name, member, str(origin))
    elif isinstance(value, Mapping):
        for member_name, member in value.items():
            origin = source.origin((*path, member_name))
            yield member_name, ConsentItem.for_value(f"{name}.{member_name}", member, str(origin))
    else:
        yield None, ConsentItem.for_value(name, value, str(source.origin(path)))
