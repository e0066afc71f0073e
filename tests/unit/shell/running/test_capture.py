"""Output in bounded memory: everything while it is short, beginning and end once it is long."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.shell.running.output import HEAD_BYTES, TAIL_BYTES, OutputCapture


def fed(tmp_path, *pieces: bytes, max_chars: int = 1_000) -> OutputCapture:
    capture = OutputCapture(tmp_path / "out", max_chars=max_chars)
    for piece in pieces:
        capture.feed(memoryview(piece))
    return capture


def test_short_output_is_shown_whole_and_leaves_no_file(tmp_path):
    capture = fed(tmp_path, b"hello ", b"world\n")
    capture.finish()
    assert capture.excerpt().text == "hello world\n"
    assert capture.path is None
    assert not (tmp_path / "out").exists()


def test_long_output_shows_both_ends_and_names_the_file_with_all_of_it(tmp_path):
    lines = [f"line {number}\n".encode() for number in range(2_000)]
    capture = fed(tmp_path, *lines)
    excerpt = capture.excerpt()
    capture.finish()
    assert excerpt.text.startswith("line 0\nline 1\n")
    assert excerpt.text.endswith("line 1998\nline 1999\n")
    assert str(tmp_path / "out") in excerpt.text
    assert len(excerpt.text) < 1_300
    assert excerpt.omitted > 10_000
    assert (tmp_path / "out").read_bytes() == b"".join(lines)


def test_memory_stays_bounded_at_any_volume(tmp_path):
    capture = OutputCapture(tmp_path / "out", max_chars=1_000)
    chunk = memoryview(b"z" * (1 << 20))
    for _ in range(100):
        capture.feed(chunk)
    assert len(capture._head) + len(capture._tail) <= HEAD_BYTES + 2 * TAIL_BYTES
    assert capture.total == 100 << 20
    assert "bytes not shown" in capture.excerpt().text
    capture.finish()


def test_characters_cut_in_two_at_the_seams_are_left_out_not_mangled(tmp_path):
    for shift in range(4):
        data = b"x" * shift + "💩".encode() * 200_000
        excerpt = fed(tmp_path / str(shift), data).excerpt()
        assert "�" not in excerpt.text


def test_colour_that_vanishes_in_cleaning_does_not_count_as_long(tmp_path):
    capture = fed(tmp_path, b"\x1b[31mx\x1b[0m" * 500)
    assert capture.excerpt().text == "x" * 500
    capture.finish()
    assert capture.path is None
    assert not (tmp_path / "out").exists()


def test_a_progress_bar_of_many_steps_is_folded_to_its_last(tmp_path):
    capture = fed(tmp_path, b"".join(b"\r%3d%%" % step for step in range(101)) + b"\ndone\n", max_chars=10_000)
    assert capture.excerpt().text == "100%\ndone\n"


def test_the_last_lines_are_short_enough_for_a_status_line(tmp_path):
    capture = fed(tmp_path, b"one\ntwo\nthree\nfour\n" + b"w" * 5_000)
    assert capture.last_lines(2).split("\n")[0] == "w" * 199 + "…"
    assert fed(tmp_path / "b", b"one\ntwo\nthree\nfour\n").last_lines(2) == "three\nfour"


@given(st.lists(st.binary(min_size=1, max_size=60), max_size=15), st.integers(0, 900))
@settings(max_examples=150, deadline=None)
def test_looking_again_shows_exactly_what_came_since(pieces, seen):
    whole = b"".join(piece.replace(b"\r", b".").replace(b"\x1b", b".").replace(b"\x08", b".") for piece in pieces)
    whole = bytes(byte if 32 <= byte < 127 else 46 for byte in whole)
    capture = fed(Path("/nowhere"), whole, max_chars=10_000)
    seen = min(seen, len(whole))
    assert capture.since(seen).text == whole[seen:].decode()
    assert capture.since(seen).omitted == 0


def test_looking_again_after_a_flood_says_how_much_is_missing(tmp_path):
    capture = fed(tmp_path, b"a" * HEAD_BYTES, b"b" * (3 * TAIL_BYTES), b"end\n", max_chars=1_000)
    excerpt = capture.since(100)
    assert excerpt.text.endswith("bend\n")
    assert excerpt.omitted == capture.total - 100 - len(excerpt.text)
    capture.finish()


def test_a_full_disk_is_named_and_the_command_goes_on(tmp_path):
    (tmp_path / "file").write_text("")
    capture = OutputCapture(tmp_path / "file" / "out", max_chars=1_000)
    capture.feed(memoryview(b"q" * 5_000))
    capture.finish()
    assert "could not be kept" in capture.excerpt().text
    assert capture.path is None
