"""Mending never touches what is already JSON, and never completes what was cut off."""

from __future__ import annotations

import json
import math

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from wieldy.core.schema.json_repair import UnreadableJson, read_object

LAW = settings(max_examples=100, deadline=None)

NASTY = st.sampled_from(
    [
        "C:\\new\\table",
        "```json",
        "}",
        "{",
        "True",
        "None",
        ",}",
        '"',
        "\\",
        "\n",
        "\t",
        "\x00",
        "\u2028",
        "é",
        "😀",
        "a: [1,]",
    ]
)
STRINGS = st.text(st.characters(exclude_categories=["Cs"]), max_size=12) | NASTY
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | STRINGS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(STRINGS, inner, max_size=4),
    max_leaves=12,
)
OBJECTS = st.dictionaries(STRINGS, VALUES, max_size=4)


@st.composite
def texts(draw):
    """A valid object as text, in one of the ways JSON can be written."""
    text = json.dumps(
        draw(OBJECTS),
        ensure_ascii=draw(st.booleans()),
        indent=draw(st.sampled_from([None, 0, 2])),
        separators=draw(st.sampled_from([(",", ":"), (" , ", " : ")])),
    )
    return draw(st.sampled_from(["", " ", "\n\t"])) + text + draw(st.sampled_from(["", " ", "\r\n"]))


@LAW
@given(texts())
def test_valid_json_is_read_as_it_stands(text):
    assert read_object(text).value == json.loads(text)
    assert read_object(text).notes == ()
    assert read_object(text.encode()).value == json.loads(text)


@LAW
@given(texts())
@example('{"a": "}"}')
@example('{"a": {"b": [1, {"c": "```"}]}}')
def test_no_proper_prefix_of_an_object_is_ever_accepted(text):
    text = text.rstrip()
    start = len(text) - len(text.lstrip())
    for end in range(start + 1, len(text)):
        try:
            read = read_object(text[:end])
        except UnreadableJson as unreadable:
            assert unreadable.cut_off, (text[:end], unreadable.reason)
        else:
            raise AssertionError(f"{text[:end]!r} was read as {read}")


@LAW
@given(st.text("{}[]:,\"\\ntrue1aN'` \n", max_size=40))
@example('{"a": 1,}')
@example('"{}"')
def test_anything_is_either_read_or_refused_and_reading_again_changes_nothing(text):
    try:
        read = read_object(text)
    except UnreadableJson as unreadable:
        assert unreadable.reason
        return
    again = read_object(json.dumps(read.value))
    assert again.value == read.value
    assert again.notes == ()


@LAW
@given(st.text("{}[]:,\"\\ntrue1aN'` \n", max_size=40))
def test_a_note_is_made_whenever_python_would_have_refused_the_text(text):
    assume(text.strip())
    try:
        read = read_object(text)
    except UnreadableJson:
        return
    try:
        plain = json.loads(text)
    except json.JSONDecodeError:
        assert read.notes
    else:
        assert read.notes or plain == read.value


@LAW
@given(OBJECTS, st.sampled_from(["comma", "fence", "brace", "bom", "string"]))
def test_every_repair_gives_back_the_object_that_was_meant(value, damage):
    assume(not any(isinstance(item, float) and not math.isfinite(item) for item in value.values()))
    text = json.dumps(value)
    damaged = {
        "comma": text[:-1] + ",}" if value else text,
        "fence": f"```json\n{text}\n```",
        "brace": text + "}",
        "bom": "\ufeff" + text,
        "string": json.dumps(text),
    }[damage]
    assert read_object(damaged).value == value


@LAW
@given(OBJECTS, st.integers(0xD800, 0xDFFF))
def test_halves_of_characters_never_come_through(value, half):
    damaged = {**value, chr(half): [chr(half) + "x"]}
    for raw in (damaged, json.dumps(damaged), json.dumps(damaged, ensure_ascii=False)):
        read = read_object(raw).value
        json.dumps(read, ensure_ascii=False).encode()
        assert read["\ufffd"] == ["\ufffdx"]
