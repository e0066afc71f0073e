"""What a terminal would have shown in the end."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.shell.running.terminal_text import clean, clean_bytes


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ("plain text\nof two lines\n", "plain text\nof two lines\n"),
        ("\x1b[31mred\x1b[0m and \x1b[1;38;5;12mblue\x1b[m", "red and blue"),
        ("\x1b]0;a window title\x07text", "text"),
        ("\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\", "link"),
        ("\x1bPdevice string\x1b\\text", "text"),
        ("\x1b(Btext\x1b=", "text"),
        ("a\x00b\x07c", "abc"),
        ("one\r\ntwo\r\n", "one\ntwo\n"),
        ("10%\r50%\r100%\ndone", "100%\ndone"),
        ("progress 10%\rdone", "doneress 10%"),
        ("progress 10%\r\x1b[Kdone", "done"),
        ("progress 10%\r\x1b[2Kdone", "done"),
        ("progress 10%\x1b[2K\rdone", "done"),
        ("long line\rab\x1b[K", "ab"),
        ("bold: b\bbo\bo", "bold: bo"),
        ("\b\b\bstart", "start"),
        ("ends in a return\r", "ends in a return"),
        ("an unfinished \x1b[31", "an unfinished "),
        ("an escape at the end \x1b", "an escape at the end "),
        ("c1 \x9b31mcontrols\x85", "c1 31mcontrols"),
        ("tab\tkept", "tab\tkept"),
    ],
)
def test_control_sequences_leave_what_a_person_would_have_seen(sent, seen):
    assert clean(sent) == seen


def test_a_title_that_never_ends_does_not_swallow_the_next_line():
    assert clean("\x1b]0;no end\nnext") == "\nnext"


def test_bytes_that_are_no_utf8_become_replacement_characters():
    assert clean_bytes(b"a\xff\xfe\xc3b\xf0\x9f\x92\xa9") == "a���b💩"


@given(st.text(st.sampled_from("ab\n\r\b\x1b[]K2m;\x07\x00 é")))
@settings(max_examples=300, deadline=None)
def test_nothing_but_text_tabs_and_line_ends_remains(sent):
    assert not set(clean(sent)) & {chr(code) for code in (*range(9), *range(11, 32), 127)}


@given(st.text(st.characters(exclude_categories=("Cc", "Cs"))))
@settings(max_examples=200, deadline=None)
def test_text_without_controls_is_left_alone(text):
    assert clean(text) == text


@given(st.text(st.sampled_from("ab\n\r\b\x1b[K2m")))
@settings(max_examples=200, deadline=None)
def test_cleaning_twice_changes_nothing_more(sent):
    assert clean(clean(sent)) == clean(sent)


@pytest.mark.parametrize(
    "unit", ["\r", "x\r", "\x1b[", "\x1b]", "\x1b[2K", "x\x1b[2K", "\x1b[0", "\b", "x\b", "\x1b[Kx", "\x1bP\x1b"]
)
def test_hostile_repetition_costs_time_in_proportion(unit):
    # A quadratic pass over so much would take minutes; the bound only tells the two apart.
    start = time.process_time()
    clean("y" * 1000 + unit * (400_000 // len(unit)))
    assert time.process_time() - start < 30
