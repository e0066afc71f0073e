from __future__ import annotations

import pytest

from wieldy.files.editing.json_positions import Malformed, items, members


def test_members_know_where_they_stand() -> None:
    text = '{ "a" : [1, 2] ,\n"é\\"": {"b": null}}'
    found, end = members(text, 0)
    assert [(m.name, text[m.start : m.named], text[m.value.start : m.value.end]) for m in found] == [
        ("a", '"a"', "[1, 2]"),
        ('é"', '"é\\""', '{"b": null}'),
    ]
    assert found[1].value.value == {"b": None}
    assert end == len(text)


def test_an_array_can_be_spread_into_its_items() -> None:
    text = '{"cells": [ {"x": 1},3 ], "other": [4]}'
    (cells, other), _ = members(text, 0, spread="cells")
    assert [text[item.start : item.end] for item in cells.value.value] == ['{"x": 1}', "3"]
    assert other.value.value == [4]


@pytest.mark.parametrize("text", ["", "[", "[1", "[1 2]", "[1,]", "[,]", "{}", "[nope]", "[" * 100_000])
def test_what_is_no_array_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        items(text, 0)


@pytest.mark.parametrize("text", ["", "{", '{"a"}', '{"a":}', "{a: 1}", '{"a": 1,}', '{"a": 1 "b": 2}', "[]"])
def test_what_is_no_object_is_malformed(text: str) -> None:
    with pytest.raises(Malformed):
        members(text, 0)
