"""For any bytes: decoding loses nothing, and an edit changes its own span only."""

from __future__ import annotations

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from wieldy.core.errors import ToolFailure
from wieldy.files.detection import Encoding
from wieldy.files.editing.document import (
    Codec,
    Document,
    Splice,
    SplitsCharacter,
    apply_splices,
    common_prefix,
    common_suffix,
    normalize_newlines,
    replace_span,
)

ASIAN = ["cp932", "gb18030", "big5", "big5hkscs", "euc_jp", "euc_jis_2004", "cp949"]
NAMES = ["utf-8", "cp1252", "latin-1", "koi8-r", "utf-16-le", "utf-16-be", *ASIAN]
BITS = st.sampled_from([b"a", b"\r", b"\n", b"\r\n", b"\xe9", b"\x81", b"\\", b"\x00", b"\xff", b" ", b"\xe3\x81\x82"])
FILES = st.one_of(st.binary(max_size=60), st.lists(BITS, max_size=40).map(b"".join))
TEXTS = st.text(st.sampled_from("ab \n\téあ表€’😀"), max_size=12)


@given(FILES, st.sampled_from(NAMES))
@settings(max_examples=150, deadline=None)
def test_every_byte_survives_decoding_or_the_file_is_refused(data: bytes, name: str) -> None:
    codec = Codec(Encoding(name))
    text = codec.decode(data)
    if name in {"utf-8", "cp1252", "latin-1", "koi8-r", "utf-16-le", "utf-16-be"}:
        assert codec.encode(text) == data[: len(data) - len(data) % codec.unit]


@given(FILES | st.binary(max_size=12), st.sampled_from(NAMES) | st.sampled_from(ASIAN))
@settings(max_examples=500, deadline=None)
def test_every_place_in_the_text_has_an_offset_and_the_parts_decode_to_the_parts(data: bytes, name: str) -> None:
    document = Document(data, Encoding(name))
    places = range(len(document.text) + 1)
    try:
        offsets = document.byte_offsets(places)
    except SplitsCharacter:
        assert name in {"big5hkscs", "euc_jis_2004"}
        return
    assert offsets == sorted(offsets) and offsets[0] == 0
    for place, offset in zip(places, offsets, strict=True):
        assert document.normalize(document.codec.decode(data[offset:])) == document.text[place:]


@given(FILES, st.sampled_from(NAMES), st.data())
@settings(max_examples=250, deadline=None)
def test_an_edit_is_the_file_before_then_the_new_text_then_the_file_after(
    data: bytes, name: str, draw: st.DataObject
) -> None:
    document = Document(data, Encoding(name))
    first, last = sorted((draw.draw(st.integers(0, len(document.text))), draw.draw(st.integers(0, len(document.text)))))
    new = draw.draw(TEXTS.filter(lambda text: "\n" not in text))
    assume(document.codec.try_encode(new) is not None)
    try:
        span = document.byte_span(first, last)
    except SplitsCharacter:
        return
    after = apply_splices(data, [replace_span(document, span, new)])
    head, tail = data[: span.start], data[span.end :]
    assert after.startswith(head) and after.endswith(tail)
    middle = after[len(head) : len(after) - len(tail)]
    codec = document.codec
    if not new and head.endswith(codec.carriage_return) and tail.startswith(codec.newline):
        assert middle in (b"", codec.carriage_return)  # lest two line ends become one
    else:
        assert normalize_newlines(codec.decode(middle)) == new


@given(
    st.text(st.sampled_from("ab é\r\n"), max_size=30),
    st.text(st.sampled_from("ab é\n␍"), max_size=8),
    st.sampled_from(["utf-8", "cp1252", "utf-16-le", "utf-16-be"]),
    st.data(),
)
@settings(max_examples=1500, deadline=None)
def test_the_text_after_an_edit_is_the_text_before_with_the_edit_made(
    written: str, new: str, name: str, draw: st.DataObject
) -> None:
    document = Document(written.encode(name), Encoding(name))
    text = document.text
    first, last = sorted((draw.draw(st.integers(0, len(text))), draw.draw(st.integers(0, len(text)))))
    expected = text[:first] + new + text[last:]
    if document.has_lone_returns:
        assume("\n" in expected)  # without a line feed, carriage returns are the line ends
    else:
        assume("␍" not in new)
    after = Document(
        apply_splices(document.data, [replace_span(document, document.byte_span(first, last), new)]), Encoding(name)
    )
    assert after.text == expected


@given(FILES, TEXTS)
@settings(max_examples=150, deadline=None)
def test_a_bytewise_search_finds_what_a_search_in_the_text_finds(data: bytes, needle: str) -> None:
    document = Document(data, Encoding("utf-8"))
    assume(needle)
    starts, at = [], document.text.find(needle)
    while at >= 0:
        starts.append(at)
        at = document.text.find(needle, at + len(needle))
    assert list(document.find(needle)) == [document.byte_span(start, start + len(needle)) for start in starts]


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.binary(max_size=4)), max_size=5), FILES)
@settings(max_examples=120, deadline=None)
def test_splices_add_up_from_left_to_right(gaps: list[tuple[int, int, bytes]], data: bytes) -> None:
    changes, at = [], 0
    for gap, length, new in gaps:
        start = min(at + gap, len(data))
        at = min(start + length, len(data))
        changes.append(Splice(start, at, new))
    expected = data
    for change in reversed(changes):
        expected = expected[: change.start] + change.new + expected[change.end :]
    assert apply_splices(data, changes) == expected


@given(st.text("ab", max_size=9), st.text("ab", max_size=9))
@settings(max_examples=150, deadline=None)
def test_common_ends_are_as_long_as_can_be(one: str, other: str) -> None:
    head, tail = common_prefix(one, other), common_suffix(one, other)
    assert (one[:head] == other[:head] and one[head : head + 1] != other[head : head + 1]) or one == other
    assert one[len(one) - tail :] == other[len(other) - tail :]
    assert tail == min(len(one), len(other)) or one[-tail - 1] != other[-tail - 1]


@given(TEXTS, st.sampled_from(NAMES))
@settings(max_examples=120, deadline=None)
def test_a_text_is_refused_just_where_the_encoding_lacks_a_character(text: str, name: str) -> None:
    codec = Codec(Encoding(name))
    try:
        text.encode(name)
    except UnicodeEncodeError:
        with pytest.raises(ToolFailure):
            codec.require(text)
    else:
        codec.require(text)
