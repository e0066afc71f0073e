from __future__ import annotations

import json

import pytest

from wieldy.core.schema.json_positions import JsonDocument, JsonSyntaxError, parse_json, parse_json_value


def read(text: str) -> JsonDocument:
    return parse_json(text, relaxed=True)


def test_every_value_knows_its_line() -> None:
    document = read('{\n  "a": [\n    "x",\n    "y"\n  ],\n  "b": {"c":\n true}\n}')
    assert document.value == {"a": ["x", "y"], "b": {"c": True}}
    assert document.line(("a",)) == 2
    assert document.line(("a", 1)) == 4
    assert document.line(("b", "c")) == 7
    assert document.line(("nothing",)) is None
    assert document.line(("a", 7)) is None


def test_comments_trailing_commas_and_a_byte_order_mark_are_tolerated() -> None:
    text = '\ufeff// first\n{ "a": 1, /* two\nlines */ "u": "http://x//y", "l": [1, 2,], }\n// last'
    assert read(text).value == {"a": 1, "u": "http://x//y", "l": [1, 2]}


@pytest.mark.parametrize(
    ("text", "line", "column", "said"),
    [
        ("", 1, 1, "empty"),
        ('{"a" 1}', 1, 6, "expected `:`"),
        ('{\n"a": 1\n"b": 2}', 3, 1, "expected `,` or `}`"),
        ('{"a": tru}', 1, 7, "found `tru`"),
        ('{"a": "x', 1, 7, "not closed"),
        ("{a: 1}", 1, 2, "double quotes"),
        ("[1, 2", 1, 6, "expected `,` or `]`"),
        ('{"a": 1}}', 1, 9, "behind the end"),
        ('{"a": NaN}', 1, 7, "found `nan`"),
        ("{,}", 1, 2, "double quotes"),
        ('"\n"', 1, 2, "control character"),
        ("[" * 200, 1, 66, "nested"),
        ("/* never closed", 1, 1, "found `/`"),
        ("1" * 5000, 1, 1, "too long"),
    ],
)
def test_what_is_not_json_is_named_with_line_and_column(text: str, line: int, column: int, said: str) -> None:
    with pytest.raises(JsonSyntaxError) as caught:
        read(text)
    assert (caught.value.line, caught.value.column) == (line, column)
    assert said in caught.value.message.lower()


def test_a_key_given_twice_is_remembered_and_the_last_counts() -> None:
    document = read('{"a": 1,\n "a": 2}')
    assert document.value == {"a": 2}
    assert document.duplicates == (("a", 2),)


@pytest.mark.parametrize(
    "value", [0, -1, 1.5, 1e-3, -2.5e10, 'q"\\\u00e9\n\U0001f600', None, True, [], {}, [[], {"a": [{}]}]]
)
def test_plain_json_means_the_same_as_to_everybody(value: object) -> None:
    assert read(json.dumps(value)).value == value


def test_members_know_where_they_stand() -> None:
    text = '{ "a" : [1, 2] ,\n"é\\"": {"b": null}}'
    root = parse_json(text).root
    assert [(m.name, text[m.start : m.name_end], text[m.node.start : m.node.end]) for m in root.members] == [
        ("a", '"a"', "[1, 2]"),
        ('é"', '"é\\""', '{"b": null}'),
    ]
    assert root.end == len(text)


def test_values_below_the_depth_asked_for_have_no_nodes() -> None:
    text = '{"cells": [ {"x": 1},3 ], "other": [4]}'
    cells = parse_json(text, depth=2).node(("cells",))
    assert cells is not None
    assert [(text[item.start : item.end], item.members) for item in cells.items] == [('{"x": 1}', ()), ("3", ())]
    assert parse_json_value(text, cells.items[0].start).members[0].name == "x"


@pytest.mark.parametrize(
    "text", ["", "[", "[1", "[1 2]", "[1,]", "[,]", "[nope]", "[" * 100_000, "// no\n[1]", "\ufeff[]"]
)
def test_strict_json_has_no_extensions(text: str) -> None:
    for depth in (0, 1, 64):
        with pytest.raises(JsonSyntaxError):
            parse_json(text, depth=depth)


@pytest.mark.parametrize("text", ["{", '{"a"}', '{"a":}', "{a: 1}", '{"a": 1,}', '{"a": 1 "b": 2}'])
def test_what_is_no_object_is_an_error(text: str) -> None:
    for depth in (0, 1, 64):
        with pytest.raises(JsonSyntaxError):
            parse_json(text, depth=depth)
