from __future__ import annotations

import tracemalloc

import pytest

from wieldy.files.search.format import LINE_CHARS, cut_line
from wieldy.files.search.ripgrep import LineReader, MatchLine


def read(*pieces: bytes) -> list[MatchLine]:
    lines: list[MatchLine] = []

    def take(line: MatchLine) -> bool:
        lines.append(line)
        return False

    reader = LineReader(take)
    for piece in pieces:
        assert not reader.consume(piece)
    return lines


def test_matches_and_context_are_told_apart():
    assert read(b"./a\x003\x005\x00text\n./a\x004\x01more\n") == [
        MatchLine(b"./a", 3, True, "text"),
        MatchLine(b"./a", 4, False, "more"),
    ]


def test_a_match_may_come_without_a_column():
    assert read(b"./a\x003\x00text\n") == [MatchLine(b"./a", 3, True, "text")]


def test_names_may_have_line_breaks_and_bytes_that_are_not_utf8():
    assert read(b"./a\nb\xff\x001\x001\x00x\n") == [MatchLine(b"./a\nb\xff", 1, True, "x")]


def test_pieces_may_end_anywhere():
    whole = b"./a\x0012\x003\x00gr\xc3\xb6\xc3\x9fer\n./b\x007\x01\n" * 3
    for size in (1, 2, 3, 5, 7):
        assert read(*(whole[at : at + size] for at in range(0, len(whole), size))) == read(whole)


def test_the_reader_says_when_enough_is_enough():
    reader = LineReader(lambda line: line.number == 2)
    assert reader.consume(b"./a\x001\x001\x00x\n./a\x002\x001\x00y\n./a\x003\x001\x00z\n")


@pytest.mark.parametrize("size", [50_000, 3_000_000])
def test_a_long_line_shows_the_part_around_its_match(size):
    line = b"x" * size + b"NEEDLE" + b"y" * size
    head = b"./a\x001\x00%d\x00" % (size + 1)
    data = head + line + b"\n"
    (whole,) = read(data)
    (pieces,) = read(*(data[at : at + 65_536] for at in range(0, len(data), 65_536)))
    for found in (whole, pieces):
        assert "NEEDLE" in found.text
        assert found.text.startswith("[") and found.text.endswith("bytes cut]")
        assert len(found.text) < LINE_CHARS + 60


def test_a_line_of_any_length_needs_little_memory():
    tracemalloc.start()
    (line,) = read(b"./a\x001\x001\x00", *[b"z" * 100_000] * 300, b"\n")
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert line.text == "z" * LINE_CHARS + f" [{30_000_000 - LINE_CHARS} bytes cut]"
    assert peak < 2_000_000


@pytest.mark.parametrize("column", [1, 2_001, 4_801, 9_001])
def test_a_cut_never_falls_inside_a_character(column):
    text = "ö" * 5_000
    for found in (
        cut_line(text.encode(), column),
        read(b"./a\x001\x00%d\x00" % column, text.encode() * 9, b"\n")[0].text,
    ):
        assert "\ufffd" not in found
        assert "ö" * LINE_CHARS in found


def test_a_short_line_is_left_alone():
    assert cut_line("grün".encode(), 3) == "grün"
    assert cut_line(b"a\xffb") == "a\ufffdb"
