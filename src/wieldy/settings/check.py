"""Checks the values of one source against the table: what does not fit is reported where it stands and left out alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from wieldy.core.truncate import truncate
from wieldy.settings.document import Path
from wieldy.settings.keys import KEYS, SettingKey, tree

_MISSING = object()


class InvalidValue(Struct, frozen=True):
    """Something that does not fit, and the path of the value."""

    path: Path
    text: str


def checked(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[InvalidValue]]:
    """The values that fit, and what is wrong with the rest. Unknown keys are kept, and said."""
    flaws: list[InvalidValue] = []
    return _section(values, tree(), (), flaws), flaws


def _section(
    values: Mapping[str, Any], table: Mapping[str, Any], path: Path, flaws: list[InvalidValue]
) -> dict[str, Any]:
    fit: dict[str, Any] = {}
    for name, value in values.items():
        here = (*path, name)
        entry = table.get(name, table.get("*"))
        if entry is None:
            flaws.append(InvalidValue(here, f"there is no setting `{dotted(here)}`{_hint(here, table)}"))
            fit[name] = value
        elif isinstance(entry, SettingKey):
            kept = _leaf(value, entry, here, flaws)
            if kept is not _MISSING:
                fit[name] = kept
        elif isinstance(value, Mapping):
            fit[name] = _section(value, entry, here, flaws)
        else:
            flaws.append(InvalidValue(here, f"`{dotted(here)}` must be an object, not {_named(value)}"))
    return fit


def _leaf(value: Any, key: SettingKey, path: Path, flaws: list[InvalidValue]) -> Any:
    match key.kind:
        case "strings" | "rules":
            return _list(value, key, path, flaws)
        case "string map" | "patterns" | "object":
            return _map(value, key, path, flaws)
    problem = _scalar_problem(value, key)
    if problem is None:
        return value
    flaws.append(InvalidValue(path, f"`{dotted(path)}` must be {problem}"))
    return _MISSING


def _list(value: Any, key: SettingKey, path: Path, flaws: list[InvalidValue]) -> Any:
    if not isinstance(value, list | tuple):
        flaws.append(InvalidValue(path, f"`{dotted(path)}` must be a list of strings, not {_named(value)}"))
        return _MISSING
    kept = []
    for index, item in enumerate(value):
        if isinstance(item, str) or (key.kind == "rules" and _is_rule_object(item)):
            kept.append(item)
        else:
            wanted = "a rule or {rule, match, not_match}" if key.kind == "rules" else "a string"
            flaws.append(
                InvalidValue(
                    (*path, index), f"item {index + 1} of `{dotted(path)}` must be {wanted}, not {_named(item)}"
                )
            )
    return kept


def _is_rule_object(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and isinstance(item.get("rule"), str)
        and set(item) <= {"rule", "match", "not_match"}
        and all(_are_strings(item.get(name, [])) for name in ("match", "not_match"))
    )


def _map(value: Any, key: SettingKey, path: Path, flaws: list[InvalidValue]) -> Any:
    if not isinstance(value, Mapping):
        flaws.append(InvalidValue(path, f"`{dotted(path)}` must be an object, not {_named(value)}"))
        return _MISSING
    if key.kind == "object":
        return dict(value)
    kept: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, str) or (key.kind == "patterns" and _are_strings(item)):
            kept[name] = item
        else:
            wanted = "a string" if key.kind == "string map" else "a list of patterns"
            flaws.append(InvalidValue((*path, name), f"`{dotted((*path, name))}` must be {wanted}, not {_named(item)}"))
    return kept


def _scalar_problem(value: Any, key: SettingKey) -> str | None:
    if key.kind == "any":
        return None
    fits = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }[key.kind]
    if not fits:
        return f"{'an' if key.kind == 'integer' else 'a'} {key.kind}, not {_named(value)}"
    if key.choices and value not in key.choices:
        return f"one of {', '.join(key.choices)}, not `{_shown(value)}`{_near(value, key.choices)}"
    return None


def _are_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _hint(path: Path, table: Mapping[str, Any]) -> str:
    name = str(path[-1])
    near = _nearest(name, [known for known in table if known != "*"])
    if near is not None:
        return f"; did you mean `{dotted((*path[:-1], near))}`?"
    elsewhere = _nearest(name, [key.name.rpartition(".")[2] for key in KEYS], cutoff=0.9)
    if elsewhere is None:
        return ""
    full = next(key.name for key in KEYS if key.name.rpartition(".")[2] == elsewhere)
    return f"; did you mean `{full}`?"


def _near(value: str, choices: tuple[str, ...]) -> str:
    near = _nearest(value, list(choices))
    return f"; did you mean `{near}`?" if near else ""


def _nearest(name: str, known: list[str], cutoff: float = 0.6) -> str | None:
    from difflib import get_close_matches

    return next(iter(get_close_matches(name[:80], known, n=1, cutoff=cutoff)), None)


def dotted(path: Path) -> str:
    """A path as people write it."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def _named(value: Any) -> str:
    if value is None:
        return "null"
    names = {
        bool: "true or false",
        str: "a string",
        int: "a number",
        float: "a number",
        list: "a list",
        dict: "an object",
    }
    return names.get(type(value), type(value).__name__)


def _shown(value: str) -> str:
    return truncate(value, 40)


def leaves(
    values: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], SettingKey | None, Any]]:
    """Every value with its path and key; unknown sections are one leaf."""
    for name, value in values.items():
        here = (*path, name)
        entry: Any = tree()
        for step in here:
            entry = entry.get(step, entry.get("*")) if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and isinstance(value, Mapping):
            yield from leaves(value, here)
        else:
            yield here, entry if isinstance(entry, SettingKey) else None, value
