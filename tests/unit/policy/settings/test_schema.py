"""The shipped schema says of a settings file what the checks say: for every key, and for every example of the docs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest

from wieldy.core.schema.json_positions import JsonDocument, JsonSyntaxError, parse_json
from wieldy.core.setting_keys import KEYS, SettingKey, key_tree
from wieldy.policy.hooks.config import parse_hooks
from wieldy.policy.hooks.events import HOOK_EVENTS
from wieldy.policy.settings.check import validate
from wieldy.policy.settings.json_schema import FILE


def read(text: str) -> JsonDocument:
    return parse_json(text, relaxed=True)


PROJECT = Path(__file__).parents[4]
SHIPPED: dict[str, Any] = read(FILE.read_text("utf-8")).value
VALIDATOR = jsonschema_rs.validator_for(SHIPPED)

FITTING: dict[str, Any] = {
    "string": "x",
    "boolean": True,
    "integer": 3,
    "number": 0.5,
    "strings": ["x"],
    "rules": ["Bash(ls)", {"rule": "Read", "match": ["Read"]}],
    "string map": {"A": "b"},
    "patterns": {"to": ["a*"], "by": "b"},
    "object": {},
    "any": [1],
}
UNFIT: dict[str, Any] = {
    "string": 3,
    "boolean": "yes",
    "integer": 1.5,
    "number": "3",
    "strings": "x",
    "rules": [3],
    "string map": {"A": 1},
    "patterns": {"to": 1},
    "object": [],
}


def placed(key: SettingKey, value: Any) -> dict[str, Any]:
    *sections, last = key.name.replace("*", "Some").split(".")
    value = {"calls": 3, "seconds": 1, last: value} if "rateLimit" in sections else {last: value}
    for name in reversed(sections):
        value = {name: value}
    return dict(value)


def accepted(settings: Any) -> tuple[bool, bool]:
    """What the schema says and what the checks say."""
    return VALIDATOR.is_valid(settings), not validate(settings)[1]


def test_the_schema_is_a_schema() -> None:
    jsonschema_rs.meta.validate(SHIPPED)
    assert set(SHIPPED["properties"]) == set(key_tree())


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_schema_and_checks_agree_on_every_key(key: SettingKey) -> None:
    for value in key.choices or (FITTING[key.kind],):
        assert accepted(placed(key, value)) == (True, True)
    if key.kind in UNFIT:
        assert accepted(placed(key, UNFIT[key.kind])) == (False, False)
    if key.choices:
        assert accepted(placed(key, "something else")) == (False, False)
    if key.kind in ("integer", "number"):
        assert accepted(placed(key, -1)) == (False, False)


@pytest.mark.parametrize(
    "rate", [{"calls": 3}, {"seconds": 3}, {"calls": 0, "seconds": 3}, {"calls": 3, "seconds": 0}, {}]
)
def test_a_rate_limit_needs_both_of_its_numbers(rate: dict[str, Any]) -> None:
    assert accepted({"tools": {"Bash": {"rateLimit": rate}}}) == (False, False)


@pytest.mark.parametrize(
    ("hooks", "fits"),
    [
        *(({event: [{"matcher": "x", "hooks": [{"command": "y"}]}]}, True) for event in HOOK_EVENTS),
        ({"PreToolUse": [{"hooks": [{"type": "command", "command": "y", "args": ["z"], "timeout": 2}]}]}, True),
        ({"PreToolUse": [{"hooks": [{"command": "y", "if": "Bash(ls)", "on_error": "warn"}]}]}, True),
        ({"PreTool": []}, False),
        ({"PreToolUse": [{"command": "y"}]}, False),
        ({"PreToolUse": [{"hooks": [{"command": ""}]}]}, False),
        ({"PreToolUse": [{"hooks": [{"command": "y", "timeout": 0}]}]}, False),
        ({"PreToolUse": [{"hooks": [{"command": "y", "args": "z"}]}]}, False),
        ({"PreToolUse": [{"hooks": [{"command": "y", "on_error": "shrug"}]}]}, False),
        ({"PreToolUse": [{"hooks": [{"command": "y", "type": "http"}]}]}, False),
    ],
)
def test_the_schema_knows_what_a_hook_is(hooks: dict[str, Any], fits: bool) -> None:
    assert VALIDATOR.is_valid({"hooks": hooks}) is fits
    assert (parse_hooks(hooks)[1] == []) is fits


@pytest.mark.parametrize(
    ("price", "fits"),
    [
        ({"input": 0, "output": 2.5}, True),
        ({"input": 1, "output": 2, "cacheRead": 0.1, "cacheWrite": 3}, True),
        ({"input": 1}, False),
        ({"input": -1, "output": 2}, False),
        ({"input": "1", "output": 2}, False),
        ({"input": 1, "output": 2, "cached": 1}, False),
        (3, False),
    ],
)
def test_a_price_is_used_only_where_it_is_one(price: Any, fits: bool) -> None:
    valid, problems = validate({"prices": {"some/model": price}})
    assert (valid["prices"] == {"some/model": price}, not problems) == (fits, fits)


def documented() -> Iterator[tuple[str, dict[str, Any]]]:
    for page in [PROJECT / "README.md", *sorted((PROJECT / "docs").rglob("*.md"))]:
        text = page.read_text("utf-8")
        indented = (
            re.sub(r"^ {4}", "", block, flags=re.MULTILINE) for block in re.findall(r"(?:^ {4}.*\n)+", text, re.M)
        )
        for block in [*re.findall(r"```jsonc?\n(.*?)```", text, re.DOTALL), *indented]:
            try:
                value = read(block).value if block.lstrip().startswith("{") else None
            except JsonSyntaxError:
                continue
            # A script of a recorded model, or one rule with its examples, is no settings file.
            if isinstance(value, dict) and not {"turns", "rule"} & set(value):
                yield page.name, value


def test_every_settings_example_of_the_docs_is_right() -> None:
    examples = list(documented())
    assert {"hooks.md", "mcp.md", "mcp-server.md", "web.md"} <= {page for page, _ in examples}
    for page, example in examples:
        assert VALIDATOR.is_valid(example), (page, [error.message for error in VALIDATOR.iter_errors(example)])
        assert validate(example)[1] == [], page
        assert parse_hooks(example.get("hooks"))[1] == [], page
