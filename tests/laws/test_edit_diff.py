"""Hunks applied to the old lines give the new ones."""

from __future__ import annotations

import re

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.diff import Hunk, make_patch
from wieldy.files.editing.document import Document, Splice, apply_splices

FILES = st.lists(st.sampled_from([b"a\n", b"b\n", b"c\r\n", b"\n", b"d\r"]), max_size=40).map(b"".join)
NEWS = st.lists(st.sampled_from([b"x", b"\n", b"b\n", b"\r\n"]), max_size=4).map(b"".join)
LINE = re.compile("[^\r\n]*(?:\r\n|\n|\r)|[^\r\n]+")
LINE_WITH_FEED = re.compile("[^\n]*\n|[^\n]+")


def lines(data: bytes, pattern: re.Pattern[str]) -> list[str]:
    found = pattern.findall(data.decode())
    return [line.removesuffix("\n").removesuffix("\r").replace("\r", "␍") for line in found]


def patched(old: list[str], hunks: tuple[Hunk, ...]) -> list[str]:
    new: list[str] = []
    at = 0
    for hunk in hunks:
        start = hunk.old_start - (1 if hunk.old_lines else 0)
        new += old[at:start]
        assert len(new) == hunk.new_start - (1 if hunk.new_lines else 0)
        kept = [line[1:] for line in hunk.lines if line[0] in " -"]
        assert kept == old[start : start + hunk.old_lines]
        new += [line[1:] for line in hunk.lines if line[0] in " +"]
        at = start + hunk.old_lines
    return new + old[at:]


@given(FILES, st.data())
@settings(max_examples=200, deadline=None)
def test_a_patch_turns_the_old_lines_into_the_new(data: bytes, draw: st.DataObject) -> None:
    cuts = sorted(draw.draw(st.lists(st.integers(0, len(data)), max_size=6).filter(lambda cuts: len(cuts) % 2 == 0)))
    splices = [Splice(a, b, draw.draw(NEWS)) for a, b in zip(cuts[::2], cuts[1::2], strict=True)]
    after = apply_splices(data, splices)
    document = Document.of(data)
    pattern = LINE_WITH_FEED if document.has_lone_returns else LINE
    result = make_patch(document, splices)
    assert patched(lines(data, pattern), result.hunks) == lines(after, pattern)
