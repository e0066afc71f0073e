from __future__ import annotations

import pytest

from wieldy.schema.json_positions import JsonDocument, parse_json
from wieldy.settings.store import ShapeError, with_items, with_value


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
