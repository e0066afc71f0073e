"""JSON as bytes: short, exact, and never something another reader refuses."""

from __future__ import annotations

import json

import pytest

from wieldy.schema.dense import dense


def test_there_are_neither_blanks_nor_needless_escapes():
    assert dense({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'.encode()


def test_numbers_json_cannot_hold_become_null():
    assert json.loads(dense({"a": [float("nan"), {"b": float("-inf")}], "c": 1.5})) == {
        "a": [None, {"b": None}],
        "c": 1.5,
    }


def test_half_of_a_character_is_the_writers_to_replace():
    with pytest.raises(UnicodeEncodeError):
        dense("\ud83d")
