"""How far contents agree: the same answer as looking at byte after byte gives."""

from __future__ import annotations

from itertools import takewhile

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.document import apply_splices, common_prefix, common_suffix, diff_bytes

PIECES = st.binary(max_size=6) | st.sampled_from([b"a" * 511, b"a" * 512, b"a" * 513, b"ab"])
CONTENTS = st.lists(PIECES, max_size=4).map(b"".join)


@settings(max_examples=300, deadline=None)
@given(CONTENTS, CONTENTS, CONTENTS, CONTENTS)
def test_contents_agree_as_far_as_their_bytes_do(start: bytes, one: bytes, other: bytes, end: bytes):
    a, b = start + one + end, start + other + end
    forwards = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(a, b, strict=False)))
    assert common_prefix(a, b) == forwards
    backwards = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(reversed(a), reversed(b), strict=False)))
    assert common_suffix(a, b) == backwards


@settings(max_examples=200, deadline=None)
@given(CONTENTS, CONTENTS, CONTENTS, CONTENTS)
def test_the_least_splice_turns_one_content_into_the_other(start: bytes, one: bytes, other: bytes, end: bytes):
    a, b = start + one + end, start + other + end
    splice = diff_bytes(a, b)
    assert apply_splices(a, (splice,)) == b and len(splice.new) <= len(other)
