"""Splices and lines of documents with any bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.document import Document, Splice

PIECES = st.sampled_from(
    ["a", "line\n", "\r\n", "\r", "\0", "é", "ß\n", "😀", "\ufeff", "日本\n"],
).map(str.encode) | st.sampled_from([b"\xe9", b"\xc3", b"\xa9", b"\xff\xfe", b"a\0b\0"])
FILES = st.lists(PIECES, max_size=30).map(b"".join)
NEWS = st.lists(PIECES, max_size=3).map(b"".join)


@st.composite
def spliced(draw: st.DrawFn) -> tuple[bytes, list[Splice]]:
    data = draw(FILES)
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6).filter(lambda cuts: len(cuts) % 2 == 0)))
    return data, [Splice(a, b, draw(NEWS)) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]


@settings(max_examples=300, deadline=None)
@given(FILES, st.data())
def test_lines_before_and_beyond_are_those_that_single_steps_lead_to(data: bytes, draw: st.DataObject) -> None:
    document = Document.of(data)
    offset = draw.draw(st.integers(document.body, len(data)))
    starts, ends = [document.line_start(offset)], [document.line_end(offset)]
    for _ in range(4):
        starts.append(
            document.line_start(starts[-1] - document.codec.unit) if starts[-1] > document.body else starts[-1]
        )
        ends.append(document.line_end(ends[-1]) if ends[-1] < len(data) else ends[-1])
    assert [document.line_start(offset, before) for before in range(5)] == starts
    assert [document.line_end(offset, beyond) for beyond in range(5)] == ends
