"""Texts are found exactly, or in one of the named tolerant ways if that is unambiguous, or not at all."""

from __future__ import annotations

import unicodedata

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.editing.matching import (
    TIERS,
    NotFound,
    Replacement,
    TextMatches,
    Tier,
    WrongCount,
    find_text,
    parse_tolerance,
    without_line_numbers,
)


def located(text: str, old: str, new: str, tolerance: tuple[Tier, ...] = TIERS) -> TextMatches:
    return find_text(Document.of(text.encode()), Replacement(old, new), tolerance)


def edited(text: str, old: str, new: str, *, tier: Tier = "exact") -> str:
    result = located(text, old, new)
    assert result.tier == tier
    return apply_splices(text.encode(), result.splices).decode()


def test_a_text_that_occurs_once_is_replaced() -> None:
    assert edited("a b c\n", "b", "B") == "a B c\n"


def test_a_text_that_occurs_more_often_is_refused_with_count_and_lines() -> None:
    with pytest.raises(WrongCount, match=r"occurs 3 times \(lines 1, 2, 4\), not once.*expected_replacements to 3"):
        located("x\nx\ny\nx\n", "x", "z")


def test_places_that_overlap_count_each() -> None:
    with pytest.raises(WrongCount, match="2 times"):
        located("aaa", "aa", "b")


def test_overlapping_places_are_not_replaced_even_if_their_number_is_right() -> None:
    with pytest.raises(WrongCount, match="overlap"):
        find_text(Document.of(b"aaa"), Replacement("aa", "b", expected=2))


def test_the_expected_number_is_replaced() -> None:
    result = find_text(Document.of(b"x x x"), Replacement("x", "y", expected=3))
    assert apply_splices(b"x x x", result.splices) == b"y y y"


@pytest.mark.parametrize("expected", [2, 4])
def test_another_number_than_expected_is_refused(expected: int) -> None:
    with pytest.raises(WrongCount, match=f"3 times .* expected_replacements is {expected}"):
        find_text(Document.of(b"x x x"), Replacement("x", "y", expected=expected))


def test_everywhere_replaces_all_from_left_to_right() -> None:
    result = find_text(Document.of(b"aaaa b aa"), Replacement("aa", "c", everywhere=True))
    assert apply_splices(b"aaaa b aa", result.splices) == b"cc b c"


def test_everywhere_with_a_number_still_checks_it() -> None:
    with pytest.raises(WrongCount, match="expected_replacements is 2"):
        find_text(Document.of(b"x x x"), Replacement("x", "y", expected=2, everywhere=True))


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("It’s here\n", "It's here", "It's there", "It’s there\n"),
        ("say “hi” now\n", 'say "hi" now', 'say "bye" or "hi" now', "say “bye” or “hi” now\n"),
        ("a\u00a0b c\n", "a b c", "a b d e", "a\u00a0b d e\n"),
        ("x – y\n", "x - y", "x - z", "x – z\n"),
        ("f（x）；\n", "f(x);", "f(x, 1);", "f（x, 1）；\n"),
        ("wait…\n", "wait...", "wait... what", "wait… what\n"),
        ("zero\u200bwidth\n", "zerowidth", "zerowidth!", "zero\u200bwidth!\n"),
        ("don't\n", "don’t", "won’t", "won't\n"),
        (
            unicodedata.normalize("NFD", "café crème\n"),
            "café crème",
            "café crème brûlée",
            unicodedata.normalize("NFD", "café crème brûlée\n"),
        ),
        ("café\n", unicodedata.normalize("NFD", "café"), unicodedata.normalize("NFD", "café noir"), "café noir\n"),
    ],
)
def test_typography_is_overlooked_and_the_style_of_the_file_is_kept(text: str, old: str, new: str, after: str) -> None:
    assert edited(text, old, new, tier="typography") == after


def test_lines_that_are_all_new_are_written_as_sent() -> None:
    after = edited("# don’t\n", "# don't", "# don't\nx = 'a'", tier="typography")
    assert after == "# don’t\nx = 'a'\n"


def test_quotes_outside_the_place_are_never_touched() -> None:
    assert edited("“a” ‘b’ it’s\n", "it's", "it is", tier="typography") == "“a” ‘b’ it is\n"


def test_an_undecodable_byte_is_recognised_by_its_replacement_character() -> None:
    data = "héé ".encode() + b"\xff x = 1\n"
    document = Document.of(data)
    result = find_text(document, Replacement("\ufffd x = 1", "\ufffd x = 2"))
    assert result.tier == "typography"
    assert apply_splices(data, result.splices) == "héé ".encode() + b"\xff x = 2\n"


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("a  \nb\nc\n", "a\nb", "a\nB", "a  \nB\nc\n"),
        ("a\nb\nc\n", "a \nb\t\n", "A\nb\n", "A\nb\nc\n"),
        ("x a\t\nb\n", "a\nb", "a\nc", "x a\t\nc\n"),
        ("f:\n  x\n  \n  y\n", "  x\n\n", "  z\n", "f:\n  z\n  y\n"),
        ("f:\n  x\n  \n  y\n", "  x\n\n", "  x\n\n  z\n", "f:\n  x\n  \n  z\n  y\n"),
        ("a  \nb\nc\n", "a\nb\n", "a", "ac\n"),
        ("a  \nb\n", "a\nb", "b\n", "b\n\n"),
        ("a  \nb\nc\n", "a\nb\n", "", "c\n"),
        ("a\nlast", "last\n", "last\nmore\n", "a\nlast\nmore"),
        ("a\nlast", "a\nlast\n", "a\nlist\n", "a\nlist"),
    ],
)
def test_white_space_at_line_ends_is_overlooked_and_kept(text: str, old: str, new: str, after: str) -> None:
    assert edited(text, old, new, tier="trailing-space") == after


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        (
            "\tif x:\n\t\ty()\n",
            "    if x:\n        y()",
            "    if x:\n        z()\n        y()",
            "\tif x:\n\t\tz()\n\t\ty()\n",
        ),
        ("    if x:\n        y()\n", "if x:\n    y()", "if z:\n    y()", "    if z:\n        y()\n"),
        ("if x:\n    y()\n", "    if x:\n        y()\n", "    if x:\n        z()\n", "if x:\n    z()\n"),
        ("        a\n            b\n", "\ta\n\t\tb\n", "\ta\n\t\t\tc\n", "        a\n                c\n"),
        ("  a {\n\n    b\n  }\n", "a {\n\n  b\n}", "a {\n\n  c\n}", "  a {\n\n    c\n  }\n"),
        ("f:\n\tx\n\t\n\ty\n", "    x\n\n", "    x\n    z\n", "f:\n\tx\n\tz\n\ty\n"),
        ("\tx = “a”\n", '    x = "a"', '    x = "a"\n    y = 1', "\tx = “a”\n\ty = 1\n"),
    ],
)
def test_a_uniform_indentation_shift_is_overlooked_and_applied_to_the_new_text(
    text: str, old: str, new: str, after: str
) -> None:
    assert edited(text, old, new, tier="indentation") == after


def test_an_indentation_that_differs_from_line_to_line_is_no_match() -> None:
    with pytest.raises(NotFound):
        located("  a\n      b\n", "a\n  b", "c")


def test_new_text_that_cannot_be_shifted_is_no_match() -> None:
    with pytest.raises(NotFound):
        located("if x:\n    y()\n", "    if x:\n        y()", "if x:\n    y()\n    z()")


@pytest.mark.parametrize(
    ("text", "old", "how"),
    [
        ("it’s\nit’s\n", "it's", "quotes"),
        ("a \nb\na\t\nb\n", "a\nb", "white space at line ends"),
        ("\tx\n  y\n\t\tx\n", "   x\n", "indentation"),
    ],
)
def test_a_tolerant_match_that_is_not_unique_is_refused(text: str, old: str, how: str) -> None:
    with pytest.raises(WrongCount, match=rf"2 times if one overlooks .*{how}"):
        located(text, old, "new")


@pytest.mark.parametrize(
    ("text", "old", "new", "after"),
    [
        ("it’s it’s\n", "it's", "is", "is is\n"),
        ("““““\n", '""', "q", "qq\n"),
        ("“a”\n“a”\n", '"a"', '"b"', "“b”\n“b”\n"),
    ],
)
def test_everywhere_is_everywhere_whatever_the_typography(text: str, old: str, new: str, after: str) -> None:
    document = Document.of(text.encode())
    result = find_text(document, Replacement(old, new, everywhere=True))
    assert apply_splices(document.data, result.splices).decode() == after and result.tier == "typography"


@pytest.mark.parametrize(("text", "old"), [("a \nb\na \nb\n", "a\nb"), ("\tx\n  y\n\t\tx\n", "   x\n")])
def test_looser_matches_are_changed_by_their_number_only(text: str, old: str) -> None:
    document = Document.of(text.encode())
    with pytest.raises(WrongCount, match="set expected_replacements to 2"):
        find_text(document, Replacement(old, "new", everywhere=True))


@pytest.mark.parametrize(
    ("tier", "text", "old"),
    [("typography", "it’s\n", "it's"), ("trailing-space", "a \nb\n", "a\nb"), ("indentation", "\tx\n", "  x\n")],
)
def test_each_tier_can_be_switched_off(tier: Tier, text: str, old: str) -> None:
    others = tuple(name for name in TIERS if name != tier)
    assert located(text, old, "y", ("exact", tier)).tier == tier
    with pytest.raises(NotFound):
        located(text, old, "y", others)


def test_the_tier_is_named_in_the_result() -> None:
    note = located("\tx\n", "  x\n", "  y\n").note
    assert "overlooking a different indentation (the file has tabs instead of spaces) (line 1)" in note


def test_a_setting_names_tiers() -> None:
    assert parse_tolerance(None) == parse_tolerance("all") == TIERS
    assert parse_tolerance("exact") == ("exact",)
    assert parse_tolerance(["indentation", "typography"]) == ("exact", "typography", "indentation")
    with pytest.raises(ToolFailure, match=r"'fuzzy'.*typography, trailing-space, indentation"):
        parse_tolerance(["fuzzy"])


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("     1\tfoo\n     2\tbar", "foo\nbar"),
        ("1→foo\n", "foo\n"),
        ("12\t\n13\tx", "\nx"),
        ("foo\n2\tbar", None),
        ("x = 1\t", None),
    ],
)
def test_line_numbers_are_recognised_only_on_every_line(text: str, cleaned: str | None) -> None:
    assert without_line_numbers(text) == cleaned


def test_line_numbers_are_refused_with_the_text_ready_to_send() -> None:
    with pytest.raises(NotFound, match="line numbers") as failure:
        located("foo\nbar\nbaz\n", "1\tfoo\n2\tbar", "1\tfoo\n2\tBAR")
    assert "old_string:\nfoo\nbar\nnew_string:\nfoo\nBAR" in failure.value.message


def test_line_numbers_before_a_text_that_is_not_there_show_the_closest_line() -> None:
    document = Document.of(b"def area(width, height):\n    return width * height\n")
    with pytest.raises(NotFound, match="line numbers") as failure:
        find_text(document, Replacement("     1\tdef area(width, heigth):", "x"))
    assert "Without them it was not found either. The closest is at line 1" in failure.value.message
    assert "old_string has `t`, the file has `h`" in failure.value.message


def test_line_numbers_before_a_text_that_occurs_twice_ask_for_more_of_it() -> None:
    with pytest.raises(NotFound, match="with surrounding lines, for it occurs 2 times"):
        find_text(Document.of(b"x\ny\nx\n"), Replacement("1\tx", "z"))


def test_numbers_that_are_in_the_file_are_no_line_numbers() -> None:
    assert edited("1\tone\n2\ttwo\n", "2\ttwo", "2\tzwei") == "1\tone\n2\tzwei\n"


def test_only_exact_matches_are_looked_for_in_a_very_large_file() -> None:
    data = b"x" * 5_000_000 + b"\nit\xe2\x80\x99s\n"
    with pytest.raises(NotFound, match="over 4 MB"):
        find_text(Document.of(data), Replacement("it's", "is"))
