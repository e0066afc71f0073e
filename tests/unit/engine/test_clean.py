"""Text that any API takes: what is unwelcome goes, all else stays as it is."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from wieldy.engine.results import clean

UNWELCOME = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")
ASCII = st.text(st.characters(max_codepoint=0x7F))
ANY = st.text(st.characters(exclude_categories=[]))


@given(ASCII)
def test_of_ascii_only_control_characters_go(text):
    assert clean(text) == UNWELCOME.sub("", text)


@given(ANY)
def test_what_is_left_is_welcome_and_cleaning_it_again_changes_nothing(text):
    cleaned = clean(text)
    assert not UNWELCOME.search(cleaned)
    assert clean(cleaned) is cleaned
    if not UNWELCOME.search(text):
        assert cleaned is text


def test_pairs_are_joined_and_halves_replaced():
    assert clean("\ud83d\ude00\ud83d") == "\N{GRINNING FACE}\N{REPLACEMENT CHARACTER}"
