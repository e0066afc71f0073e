"""Names of contents: always those of the content, whatever was remembered."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.splicing import common_prefix
from wieldy.files.journal.store import LARGEST_NAMES, REMEMBERED, STRIDE, Names, digest_of


def test_a_name_is_the_digest_of_the_content_and_of_nothing_remembered():
    names = Names()
    for data in (b"one", b"other", b"one", b"", b"x" * (LARGEST_NAMES + 1), b"one"):
        assert names.of("/p", data).name == digest_of(data)


def test_paths_do_not_mix_and_the_oldest_is_forgotten():
    names = Names()
    for number in range(REMEMBERED * 2):
        assert names.of(f"/{number}", b"%d" % number).name == digest_of(b"%d" % number)
    for number in range(REMEMBERED * 2):
        assert names.of(f"/{number}", b"%d" % (number + 1)).name == digest_of(b"%d" % (number + 1))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 4 * STRIDE), st.binary(max_size=3), st.integers(0, 2 * STRIDE)), max_size=8))
def test_of_what_comes_next_only_the_rest_is_hashed_and_the_name_is_the_same(edits: list[tuple[int, bytes, int]]):
    names, data = Names(), bytes(range(256)) * (3 * STRIDE // 256) + b"the end"
    named = names.of("/p", data)
    for start, new, gone in edits:
        after = data[:start] + new + data[start + gone :]
        named = names.of_next("/p", after, named, common_prefix(data, after))
        assert named.name == digest_of(after) == names.of("/p", after).name
        data = after


def test_a_content_too_large_to_be_remembered_is_followed_by_any_other():
    names, large = Names(), b"x" * (LARGEST_NAMES + STRIDE)
    for after in (large[:-1], large[:LARGEST_NAMES], large[:STRIDE], large):
        assert names.of_next("/p", after, names.of("/p", large), len(after)).name == digest_of(after)
