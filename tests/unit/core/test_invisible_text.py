"""What escapes the eye is found and spelled out; honest text is left as it is."""

from __future__ import annotations

import pytest

from wieldy.core.invisible_text import describe_invisible, escape_invisible


@pytest.mark.parametrize("code", range(128))
def test_of_plain_characters_those_without_a_shape_are_hidden(code):
    text = f"echo a{chr(code)}b"
    honest = chr(code).isprintable() or chr(code) in "\t\n"
    assert (describe_invisible(text) is None) == honest
    assert (escape_invisible(text) == text) == honest


@pytest.mark.parametrize("odd", ["\u200b", "\u202e", "\u00a0", "\ufeff", "\udc80", "\x85", "\U000e0041"])
def test_beyond_them_what_cannot_be_seen_is_named(odd):
    assert describe_invisible(f"rm {odd}x") == f"a character that cannot be seen (U+{ord(odd):04X})"
    assert f"<U+{ord(odd):04X}>" in escape_invisible(f"rm {odd}x")


def test_letters_of_other_scripts_are_honest():
    assert describe_invisible("echo größe 日本語") is None


def test_blanks_that_push_the_rest_out_of_sight_are_told():
    assert describe_invisible("ls" + " " * 100 + "; rm x") == "a run of 100 blanks"
