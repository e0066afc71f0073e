"""Several edits are one change, or none."""

from __future__ import annotations

import pytest

from wieldy.files.editing.document import Document
from wieldy.files.editing.matching import NotFound, Replacement, WrongCount
from wieldy.files.editing.replacements import EditsConflict, plan_batch
from wieldy.files.editing.splicing import apply_splices


def edited(text: str, *pairs: tuple[str, str]) -> str:
    document = Document.of(text.encode())
    return apply_splices(document.data, plan_batch(document, [Replacement(*pair) for pair in pairs]).splices).decode()


def test_edits_in_any_order_of_places_are_all_made() -> None:
    assert edited("a b c d\n", ("d", "DD"), ("a", ""), ("c", "CCC")) == " b CCC DD\n"


def test_each_edit_is_counted_on_the_result_of_the_last() -> None:
    assert edited("x y x\n", ("x y", "Y"), ("x", "z")) == "Y z\n"


def test_edits_next_to_each_other_do_not_overlap() -> None:
    assert edited("abcd", ("ab", "1"), ("cd", "2")) == "12"
    assert edited("abcd", ("cd", "2"), ("ab", "1")) == "12"


def test_context_that_an_earlier_edit_left_alone_may_be_changed() -> None:
    assert edited("f(a)\nbar\n", ("f(a)\nbar", "f(b)\nbar"), ("bar", "baz")) == "f(b)\nbaz\n"


def test_a_text_that_only_an_earlier_edit_wrote_is_a_dependency() -> None:
    with pytest.raises(EditsConflict, match="Edit 2 depends on edit 1: its old_string is only there because"):
        edited("a\nb\n", ("a", "new"), ("new\nb", "new\nB"))


def test_a_text_that_an_earlier_edit_destroyed_is_a_dependency() -> None:
    with pytest.raises(EditsConflict, match="Edit 3 depends on text that edit 1 changes"):
        edited("one two three\n", ("two", "2"), ("three", "3"), ("one two", "x"))


def test_a_text_that_only_a_later_edit_writes_is_a_dependency() -> None:
    with pytest.raises(EditsConflict, match="Edit 1 depends on edit 2"):
        edited("a\nb\n", ("zzz", "y"), ("a", "zzz"))


def test_two_edits_of_the_same_text_overlap() -> None:
    with pytest.raises(EditsConflict, match="Edits 1 and 2 overlap"):
        edited("abcdef", ("bcd", "bXd"), ("bXd", "bYd"))


def test_two_replacements_of_the_same_text_contradict() -> None:
    with pytest.raises(EditsConflict, match="Edits 1 and 3 contradict"):
        edited("a b\n", ("a", "x"), ("b", "c"), ("a", "y"))


def test_the_same_edit_twice_is_refused() -> None:
    with pytest.raises(EditsConflict, match="Edits 1 and 2 are the same"):
        edited("a b\n", ("a", "x"), ("a", "x"))


def test_a_failing_edit_is_named_by_its_number() -> None:
    with pytest.raises(NotFound, match="Edit 2 of 2: old_string was not found"):
        edited("a b\n", ("a", "x"), ("zzzz", "y"))
    with pytest.raises(WrongCount, match="Edit 2 of 2: old_string occurs 2 times"):
        edited("a b b\n", ("a", "x"), ("b", "y"))


def test_the_batch_counts_places_and_keeps_notes() -> None:
    document = Document.of("x x it’s\n".encode())
    batch = plan_batch(document, [Replacement("x", "y", everywhere=True), Replacement("it's", "is")])
    assert batch.count == 3
    assert len(batch.notes) == 1 and batch.notes[0].startswith("Edit 2 of 2: old_string matched only")
