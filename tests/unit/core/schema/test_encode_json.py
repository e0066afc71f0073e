"""JSON as bytes: short, exact, and never something another reader refuses."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from wieldy.core.schema.strict_json import encode_json, encode_json_text

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.tuples(inner, inner) | st.dictionaries(st.text() | st.integers(), inner),
)


def test_there_are_neither_blanks_nor_needless_escapes():
    assert encode_json({"a": [1, "é"], "b": None}) == '{"a":[1,"é"],"b":null}'.encode()


@given(VALUES)
def test_any_value_is_written_as_the_library_writes_it(value):
    assert encode_json_text(value) == json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def test_what_json_does_not_know_is_an_error():
    with pytest.raises(TypeError):
        encode_json({"a": object()})


def test_numbers_json_cannot_hold_become_null():
    assert json.loads(encode_json({"a": [float("nan"), {"b": float("-inf")}], "c": 1.5})) == {
        "a": [None, {"b": None}],
        "c": 1.5,
    }


def test_half_of_a_character_is_the_writers_to_replace():
    with pytest.raises(UnicodeEncodeError):
        encode_json("\ud83d")
