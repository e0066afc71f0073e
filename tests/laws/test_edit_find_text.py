"""Tolerance never guesses: it fires at the expected number of places or not, and changes nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.editing.matching import TIERS, Replacement, find_text, find_tolerant, fold, fold_text

CHARS = "ab'’\"“- –\u00a0\u200be\u0301é…"
LINES = st.text(st.sampled_from(CHARS + "\t"), max_size=8)
TEXTS = st.lists(LINES, min_size=1, max_size=8).map("\n".join)


@given(st.text(st.sampled_from(CHARS + "\n（。"), max_size=30))
@settings(max_examples=200, deadline=None)
def test_every_cut_of_a_folded_text_is_a_cut_of_the_source_that_folds_to_it(text: str) -> None:
    folded = fold(text)
    for place in range(len(folded.text) + 1):
        start, end = folded.source_start(place), folded.source_end(place)
        if start is not None:
            assert fold_text(text[start:]) == folded.text[place:]
        if end is not None:
            assert fold_text(text[:end]) == folded.text[:place]


@given(TEXTS, st.data())
@settings(max_examples=300, deadline=None)
def test_a_text_is_replaced_at_the_expected_number_of_places_or_nothing_happens(text: str, draw: st.DataObject) -> None:
    first, last = sorted((draw.draw(st.integers(0, len(text))), draw.draw(st.integers(0, len(text)))))
    part = text[first:last]
    old = draw.draw(st.sampled_from([part, fold_text(part), part.rstrip(), "  " + part]))
    expected = draw.draw(st.integers(1, 2))
    document = Document.of(text.encode())
    if not old:
        return
    try:
        result = find_text(document, Replacement(old, "NEW", expected=expected))
    except ToolFailure:
        return
    assert len(result.splices) == expected
    if result.tier == "exact":
        assert text.count(old) == expected
    else:
        assert old not in text
        assert len(find_tolerant(document, old, result.tier)) == expected
    after = apply_splices(document.data, result.splices).decode()
    assert after.count("NEW") == expected


@given(TEXTS, LINES.filter(bool), st.text(st.sampled_from("\\1g<0>$&`'n"), min_size=1, max_size=10))
@settings(max_examples=150, deadline=None)
def test_an_exact_replacement_is_what_python_replaces(text: str, old: str, new: str) -> None:
    document = Document.of(text.encode())
    try:
        result = find_text(document, Replacement(old, new, everywhere=True), ("exact",))
    except ToolFailure:
        assert old not in text
        return
    assert apply_splices(document.data, result.splices).decode() == text.replace(old, new)


@given(TEXTS, TEXTS, TEXTS.filter(lambda text: bool(text.strip())), TEXTS, st.sampled_from(["\n", "\r\n", "\r"]))
@settings(max_examples=200, deadline=None)
def test_only_the_place_that_was_found_changes(head: str, tail: str, old: str, new: str, newline: str) -> None:
    text = "\n".join((head, old, tail))
    data = text.replace("\n", newline).encode()
    document = Document.of(data)
    for tier in TIERS[1:]:
        for place in find_tolerant(document, old + " ", tier):
            assert document.subdocument(place.span).text == place.file_text
    try:
        result = find_text(document, Replacement(old, new))
    except ToolFailure:
        return
    after = apply_splices(data, result.splices)
    if result.tier == "exact":
        assert after == text.replace(old, new).replace("\n", newline).encode()


SPACED = st.tuples(st.sampled_from(["", "foo", "bar x", "if q:"]), st.sampled_from(["", " ", "    ", "\t"])).map(
    "".join
)


def bare(text: str) -> list[str]:
    """Lines without white space at their ends."""
    return [line.rstrip(" \t") for line in text.split("\n")]


@given(st.lists(SPACED, min_size=2, max_size=8), st.sampled_from(["", "\n"]), st.data())
@settings(max_examples=500, deadline=None)
def test_white_space_at_line_ends_stays_at_line_ends(lines: list[str], end: str, draw: st.DataObject) -> None:
    text = "\n".join(lines) + "\nlast\n"
    first = draw.draw(st.integers(0, len(lines) - 1))
    count = draw.draw(st.integers(1, len(lines) - first))
    old = "\n".join(bare(text)[first : first + count]) + end
    new = "\n".join(draw.draw(st.lists(st.sampled_from([*bare(text), "NEW", ""]), min_size=1, max_size=4))) + end
    document = Document.of(text.encode())
    try:
        result = find_text(document, Replacement(old, new), ("exact", "trailing-space"))
    except ToolFailure:
        return
    (place,) = result.spans
    after = apply_splices(document.data, result.splices).decode()
    assert bare(after) == bare(text[: place.start] + new + text[place.end :])
