"""Validates the values of one source against the table of keys: an invalid value is reported where it stands and dropped."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct

from wieldy.core.schema.json_positions import JsonPath
from wieldy.core.setting_keys import KEYS, SettingKey, key_tree, to_camel_case
from wieldy.core.text import MISSPELLED, SIMILAR, did_you_mean, nearest_name, truncate

RESTRICTING = ("deny", "ask")
_INVALID = object()
_HOST_PATTERN = re.compile(r"(\*\.)?[^\s/*:@]+(:\d{1,5})?")


MAX_PROBLEMS = 50


class _TooManyProblems(Exception):
    """What is wrong is not worth looking at one by one."""


class _Problems(list["InvalidValue"]):
    """Problems of one source, up to a bound: each may be searched for similar names, which a hostile file could exploit."""

    def append(self, problem: InvalidValue) -> None:
        if len(self) >= MAX_PROBLEMS:
            raise _TooManyProblems
        super().append(problem)


class InvalidValue(Struct, frozen=True):
    """What is wrong with a value, and its path."""

    path: JsonPath
    text: str

    @property
    def fatal(self) -> bool:
        """Whether a restriction may be lost: the path, with its misspelled names corrected, leads to one."""
        entry: Any = key_tree()
        for depth, step in enumerate(self.path):
            if not isinstance(entry, Mapping):
                break
            near = step if step in entry else nearest_name(str(step), entry, cutoff=SIMILAR if depth else MISSPELLED)
            entry = entry.get(near, entry.get("*"))
        return _restricts(entry)


def _restricts(entry: Any) -> bool:
    """Whether a key restricts, or any key of a section."""
    if isinstance(entry, Mapping):
        return any(map(_restricts, entry.values()))
    return isinstance(entry, SettingKey) and entry.restricts


def validate(values: Mapping[str, Any]) -> tuple[dict[str, Any], list[InvalidValue]]:
    """Return the valid values, and what is wrong with the rest. Unknown keys are kept and reported.

    With too many problems nothing is valid, and that is fatal: a restriction may be among what was not looked at.
    """
    problems = _Problems()
    try:
        valid = _validate_section(values, key_tree(), (), problems)
    except _TooManyProblems:
        text = f"more than {MAX_PROBLEMS} problems in this file; nothing of it is used"
        return {}, [*problems[:3], InvalidValue((), text)]
    reported = {problem.path[:3] for problem in problems}
    problems += [problem for problem in _rate_limit_problems(valid) if problem.path not in reported]
    problems += _host_problems(valid)
    for problem in (prices := list(_price_problems(valid))):
        del valid["prices"][problem.path[1]]
    return valid, [*problems, *prices]


_PRICE_FIELDS = frozenset({"input", "output", "cacheRead", "cacheWrite"})


def _price_problems(values: Mapping[str, Any]) -> Iterator[InvalidValue]:
    """Yield prices that lack one of their two numbers, or hold something else than numbers from 0 on."""
    prices = values.get("prices")
    for name, price in prices.items() if isinstance(prices, Mapping) else ():
        is_price = isinstance(price, Mapping) and {"input", "output"} <= price.keys() <= _PRICE_FIELDS
        if not is_price or not all(type(number) in (int, float) and number >= 0 for number in price.values()):
            path = ("prices", name)
            fields = "`input`, `output` and perhaps `cacheRead` and `cacheWrite`"
            yield InvalidValue(path, f"`{dotted(path)}` must hold {fields}, in dollars per million tokens")


def _host_problems(values: Mapping[str, Any]) -> Iterator[InvalidValue]:
    """Yield hosts of the sandbox that match nothing, such as a URL."""
    sandbox = values.get("sandbox")
    hosts = sandbox.get("allowedDomains", ()) if isinstance(sandbox, Mapping) else ()
    for index, host in enumerate(hosts):
        if not _HOST_PATTERN.fullmatch(host):
            path = ("sandbox", "allowedDomains", index)
            examples = "`example.com`, `*.example.com` or `example.com:8080`"
            text = f"item {index + 1} of `{dotted(path[:2])}` must be a host such as {examples}"
            yield InvalidValue(path, f"{text}, not `{truncate(host, 40)}`")


def _rate_limit_problems(values: Mapping[str, Any]) -> Iterator[InvalidValue]:
    """Yield rate limits that have only one of their two numbers, or let no call run."""
    sections = values.get("tools")
    for name, section in sections.items() if isinstance(sections, Mapping) else ():
        rate = section.get("rateLimit") if isinstance(section, Mapping) else None
        if isinstance(rate, Mapping) and not (rate.get("calls") and rate.get("seconds")):
            path = ("tools", name, "rateLimit")
            yield InvalidValue(path, f"`{dotted(path)}` needs `calls` and `seconds`, both above 0")


def _validate_section(
    values: Mapping[str, Any], keys: Mapping[str, Any], path: JsonPath, problems: list[InvalidValue]
) -> dict[str, Any]:
    valid: dict[str, Any] = {}
    for written_name, value in values.items():
        here = (*path, written_name)
        # Older versions had names such as `max_bytes`.
        name = written_name if written_name in keys or "*" in keys else to_camel_case(written_name)
        entry = keys.get(name, keys.get("*"))
        if entry is None:
            name = written_name
            problems.append(InvalidValue(here, f"there is no setting `{dotted(here)}`{_suggest_key(here, keys)}"))
            valid[name] = value
        elif isinstance(entry, SettingKey):
            validated = _validate_value(value, entry, here, problems)
            if validated is not _INVALID:
                valid[name] = validated
        elif isinstance(value, Mapping):
            valid[name] = _validate_section(value, entry, here, problems)
        else:
            problems.append(InvalidValue(here, f"`{dotted(here)}` must be an object, not {_type_name(value)}"))
    return valid


def _validate_value(value: Any, key: SettingKey, path: JsonPath, problems: list[InvalidValue]) -> Any:
    match key.kind:
        case "strings" | "rules":
            return _validate_list(value, key, path, problems)
        case "string map" | "patterns" | "object":
            return _validate_map(value, key, path, problems)
    problem = _scalar_problem(value, key)
    if problem is None:
        return value
    problems.append(InvalidValue(path, f"`{dotted(path)}` must be {problem}"))
    return _INVALID


def _validate_list(value: Any, key: SettingKey, path: JsonPath, problems: list[InvalidValue]) -> Any:
    if not isinstance(value, list | tuple):
        problems.append(InvalidValue(path, f"`{dotted(path)}` must be a list of strings, not {_type_name(value)}"))
        return _INVALID
    expected = "a rule or {rule, match, not_match}" if key.kind == "rules" else "a string"
    valid = []
    for index, item in enumerate(value):
        if isinstance(item, str) or (key.kind == "rules" and _is_rule_object(item)):
            valid.append(item)
        else:
            text = f"item {index + 1} of `{dotted(path)}` must be {expected}, not {_type_name(item)}"
            problems.append(InvalidValue((*path, index), text))
    return valid


def _is_rule_object(item: Any) -> bool:
    return (
        isinstance(item, Mapping)
        and isinstance(item.get("rule"), str)
        and set(item) <= {"rule", "match", "not_match"}
        and all(_are_strings(item.get(name, [])) for name in ("match", "not_match"))
    )


def _validate_map(value: Any, key: SettingKey, path: JsonPath, problems: list[InvalidValue]) -> Any:
    if not isinstance(value, Mapping):
        problems.append(InvalidValue(path, f"`{dotted(path)}` must be an object, not {_type_name(value)}"))
        return _INVALID
    if key.kind == "object":
        return dict(value)
    expected = "a string" if key.kind == "string map" else "a list of patterns"
    valid: dict[str, Any] = {}
    for name, item in value.items():
        if isinstance(item, str) or (key.kind == "patterns" and _are_strings(item)):
            valid[name] = item
        else:
            here = (*path, name)
            problems.append(InvalidValue(here, f"`{dotted(here)}` must be {expected}, not {_type_name(item)}"))
    return valid


def _scalar_problem(value: Any, key: SettingKey) -> str | None:
    if key.kind == "any":
        return None
    is_valid = {
        "string": isinstance(value, str),
        "boolean": isinstance(value, bool),
        "integer": isinstance(value, int) and not isinstance(value, bool),
        "number": isinstance(value, int | float) and not isinstance(value, bool),
    }[key.kind]
    if not is_valid:
        return f"{'an' if key.kind == 'integer' else 'a'} {key.kind}, not {_type_name(value)}"
    if key.kind == "integer" and value < 0:
        return f"at least 0, not {value}"
    if key.kind == "number" and not value > 0:
        return f"above 0, not {value:g}"
    if key.choices and value not in key.choices:
        return f"one of {', '.join(key.choices)}, not `{truncate(value, 40)}`{did_you_mean(value, key.choices)}"
    return None


def _are_strings(value: Any) -> bool:
    return isinstance(value, list | tuple) and all(isinstance(item, str) for item in value)


def _suggest_key(path: JsonPath, siblings: Mapping[str, Any]) -> str:
    """Suggest a key with a similar name: in the same section, else anywhere."""
    name = str(path[-1])
    near = nearest_name(name, [known for known in siblings if known != "*"])
    if near is not None:
        return f"; did you mean `{dotted((*path[:-1], near))}`?"
    by_last_name = {key.name.rpartition(".")[2]: key.name for key in reversed(KEYS)}
    elsewhere = nearest_name(name, by_last_name, cutoff=MISSPELLED)
    return "" if elsewhere is None else f"; did you mean `{by_last_name[elsewhere]}`?"


def _type_name(value: Any) -> str:
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


def dotted(path: JsonPath) -> str:
    """Spell a path as people write it: `a.b[0]`."""
    return "".join(f"[{step}]" if isinstance(step, int) else f".{step}" for step in path).lstrip(".")


def leaves(
    values: Mapping[str, Any], path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], SettingKey | None, Any]]:
    """Yield every value with its path and key; an unknown section is one value."""
    for name, value in values.items():
        here = (*path, name)
        entry: Any = key_tree()
        for step in here:
            entry = entry.get(step, entry.get("*")) if isinstance(entry, Mapping) else None
        if isinstance(entry, Mapping) and isinstance(value, Mapping):
            yield from leaves(value, here)
        else:
            yield here, entry if isinstance(entry, SettingKey) else None, value
