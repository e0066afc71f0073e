"""A page is what decoding the whole file, splitting it into lines and slicing would give, however the bytes arrive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wieldy.files.detection import Encoding
from wieldy.files.reading.read_file import (
    HEAD,
    MAX_LINE_CHARS,
    LineEndings,
    OpenFile,
    Page,
    count_breaks,
    normalize_breaks,
    read_page,
)

LAW = settings(
    max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)

scraps = st.sampled_from(
    ["", "a", "\t x", "é", "漢字", "🙂", "\x0b\x0c", "\u2028", "\x85", "y" * 50, "w" * (MAX_LINE_CHARS + 7)]
)
breaks = st.sampled_from(["\n", "\r\n", "\r", "\n\n", "\r\r\n"])
texts = st.lists(st.tuples(scraps, breaks), max_size=12).map(lambda parts: "".join(a + b for a, b in parts))
stray = st.sampled_from([b"", b"\xff", b"\xe4\xbd", b"\xc3", b"tail"])
utf8_ish = st.builds(lambda text, end: text.encode() + end, texts, stray)
wide = st.builds(
    lambda text, codec, mark: (
        ((b"\xff\xfe" if codec == "utf-16-le" else b"\xfe\xff") if mark else b"") + text.encode(codec)
    ),
    texts,
    st.sampled_from(["utf-16-le", "utf-16-be"]),
    st.booleans(),
)
contents = st.one_of(utf8_ish, wide, st.binary(max_size=200))


def expected_lines(data: bytes, encoding: Encoding) -> list[str]:
    text = data[len(encoding.bom) :].decode(encoding.name, "replace")
    lines = text.replace("\r\n", "\n").replace("\r", "␍" if "\n" in text else "\n").split("\n")
    if lines[-1] == "":
        lines.pop()
    return [fitted(line) for line in lines]


def fitted(line: str) -> str:
    beyond = len(line) - MAX_LINE_CHARS
    return f"{line[:MAX_LINE_CHARS]}… [{beyond} more characters in this line]" if beyond > 0 else line


def page_of(path: Path, data: bytes, **how: Any) -> Page:
    path.write_bytes(data)
    with OpenFile(str(path)) as file:
        return read_page(file, **how)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "file"


@LAW
@given(data=contents, first=st.integers(1, 30), limit=st.integers(1, 30))
def test_a_page_is_a_slice_of_all_lines(path: Path, data: bytes, first: int, limit: int) -> None:
    page = page_of(path, data, first=first, limit=limit)
    lines = expected_lines(data, page.encoding)
    assert page.lines == lines[first - 1 : first - 1 + limit]
    assert (page.total, page.counted, page.data) == (len(lines), True, data)
    assert page.complete == (first == 1 and limit >= len(lines))


@LAW
@given(data=contents, first=st.integers(1, 30), limit=st.integers(1, 30), block=st.integers(1, 64))
def test_a_file_too_large_to_load_gives_the_same_lines(
    path: Path, data: bytes, first: int, limit: int, block: int
) -> None:
    page = page_of(path, b"#" * HEAD + b"\n" + data, first=first + 1, limit=limit, loaded=100, block=block)
    whole = b"\n" + data
    assert page.lines == expected_lines(whole, page.encoding)[first : first + limit]
    assert page.data is None


@LAW
@given(data=wide, first=st.integers(1, 30), block=st.integers(1, 64))
def test_a_wide_text_in_blocks_gives_the_same_lines(path: Path, data: bytes, first: int, block: int) -> None:
    preface = "\N{BOM}".encode("utf-16-le") + ("#" * (HEAD // 2) + "\n").encode("utf-16-le")
    page = page_of(path, preface + data, first=first + 1, loaded=100, block=block)
    assert page.lines == expected_lines(b"\n\0" + data, Encoding("utf-16-le"))[first:]


@LAW
@given(text=texts, limit=st.integers(1, 9), chars=st.integers(3, 3000))
def test_reading_on_from_where_a_page_ends_reaches_every_line(path: Path, text: str, limit: int, chars: int) -> None:
    data = text.encode()
    gathered: list[str] = []
    while True:
        page = page_of(path, data, first=len(gathered) + 1, limit=limit, chars=chars)
        assert len(page.numbered) <= chars or len(page.lines) == 1
        gathered += page.lines
        if page.last >= page.total:
            break
        assert page.lines
    assert gathered == expected_lines(data, Encoding("utf-8"))


@LAW
@given(pieces=st.lists(st.text("ab\r\n", max_size=6).map(str.encode)), lone=st.booleans())
def test_line_breaks_are_counted_wherever_the_text_is_cut(pieces: list[bytes], lone: bool) -> None:
    met, whole = LineEndings(), b"".join(pieces)
    found = list(count_breaks(pieces, met, lone))
    expected = whole.replace(b"\r\n", b"\n").replace(b"\r", b"\n" if lone else b"\r")
    normalized = [normalize_breaks(piece, lone) for piece, _ in found]
    assert b"".join(normalized) == expected
    assert [count for _, count in found] == [piece.count(b"\n") for piece in normalized]
    alone = whole.replace(b"\r\n", b"")
    assert (met.crlf, met.lf, met.cr) == (b"\r\n" in whole, b"\n" in alone, lone and b"\r" in alone)
