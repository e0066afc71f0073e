from __future__ import annotations

import pytest

from wieldy.core.schema.json_positions import JsonDocument, parse_json
from wieldy.policy.settings.store import ShapeError, with_items, with_value, without_items, without_member


def read(text: str) -> JsonDocument:
    return parse_json(text, relaxed=True)


ALLOW = ("permissions", "allow")


def test_an_item_is_added_and_every_other_character_stays() -> None:
    text = '{\n  // mine\n  "permissions": {\n    "allow": [\n      "Read", // why\n    ],\n    "deny": []\n  }\n}\n'
    changed = with_items(text, ALLOW, ["Bash(ls:*)"])
    assert read(changed).value["permissions"] == {"allow": ["Read", "Bash(ls:*)"], "deny": []}
    assert "// mine" in changed and "// why" in changed
    assert changed.replace(',\n      "Bash(ls:*)"', "") == text


@pytest.mark.parametrize(
    "text",
    [
        None,
        "",
        "{}",
        "{\n}\n",
        "{ // only a remark\n}",
        '{"permissions": {}}',
        '{"permissions": {"allow": []}}',
        '{"permissions": {"allow": ["Read"]}}',
        '{"permissions": {"deny": ["Bash"]}, "env": {}}',
        '{"env": {"A": "1"},}',
        '{\n\t"env": {}\n}',
        '{"permissions": {"allow": [ /* none */ ]}}',
    ],
)
def test_an_item_finds_its_place_in_any_file(text: str | None) -> None:
    before = read(text).value if text else {}
    after = read(with_items(text, ALLOW, ["A", "B"])).value
    held = before.get("permissions", {}).get("allow", [])
    assert after["permissions"]["allow"] == [*held, "A", "B"]
    after["permissions"]["allow"] = held
    expected = {**before, "permissions": {**before.get("permissions", {}), "allow": held}}
    assert after == expected


def test_what_is_there_already_is_not_added_again() -> None:
    text = '{"permissions": {"allow": ["A"]}}'
    assert with_items(text, ALLOW, ["A"]) == text


def test_a_value_is_set_or_replaced() -> None:
    assert read(with_value(None, ("compat", "claude"), True)).value == {"compat": {"claude": True}}
    changed = with_value('{"compat": {"claude": false}, "a": [1]} // end', ("compat", "claude"), True)
    assert changed == '{"compat": {"claude": true}, "a": [1]} // end'


@pytest.mark.parametrize("text", ['{"permissions": []}', '{"permissions": {"allow": "x"}}', "[]"])
def test_a_file_of_another_shape_is_not_touched(text: str) -> None:
    with pytest.raises(ShapeError):
        with_items(text, ALLOW, ["A"])


def test_the_new_file_is_laid_out_for_people() -> None:
    assert with_items(None, ALLOW, ["A"]) == '{\n  "permissions": {\n    "allow": [\n      "A"\n    ]\n  }\n}\n'


SERVERS = """{
  // all of mine
  "mcpServers": {
    // about a
    "a": {"command": "true"}, // after a
    /* about b */
    "b": {"command": "true"}
  },
  // the end
  "model": "x/y"
}
"""


def test_a_member_is_removed_and_every_comment_stays() -> None:
    first = without_member(SERVERS, ("mcpServers", "a"))
    assert read(first).value["mcpServers"] == {"b": {"command": "true"}}
    last = without_member(SERVERS, ("mcpServers", "b"))
    assert read(last).value["mcpServers"] == {"a": {"command": "true"}}
    for changed in (first, last):
        assert all(words in changed for words in ("all of mine", "about a", "after a", "about b", "the end"))
    assert first == SERVERS.replace('    "a": {"command": "true"}, // after a\n', "    // after a\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"m": {"a": 1}}', '{"m": {}}'),
        ('{"m": {"a": 1, "b": 2}}', '{"m": {"b": 2}}'),
        ('{"m": {"b": 2, "a": 1}}', '{"m": {"b": 2}}'),
        ('{"m": {"b": 2, "a": 1,}}', '{"m": {"b": 2,}}'),
        ('{\n  "m": {\n    "a": 1\n  }\n}\n', '{\n  "m": {}\n}\n'),
        ('{\n  "m": {\n    "a": 1,\n    "b": 2\n  }\n}\n', '{\n  "m": {\n    "b": 2\n  }\n}\n'),
        ('{\n  "m": {\n    "b": 2,\n    "a": {\n      "x": 1\n    }\n  }\n}\n', '{\n  "m": {\n    "b": 2\n  }\n}\n'),
        ('{"m": {"b": 1}}', '{"m": {"b": 1}}'),
        ("{}", "{}"),
    ],
)
def test_what_is_left_reads_as_if_the_member_had_never_been_there(text: str, expected: str) -> None:
    assert without_member(text, ("m", "a")) == expected


def test_a_list_that_becomes_empty_is_empty() -> None:
    text = with_items(None, ALLOW, ["A"])
    assert without_items(text, ALLOW, ["A"]) == ('{\n  "permissions": {\n    "allow": []\n  }\n}\n', ["A"])
