"""Several edits are one change, or none."""

from __future__ import annotations

import pytest

from wieldy.files.detection import Encoding
from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.editing.matching import NotFound, Replacement, WrongCount
from wieldy.files.editing.revision import EditsConflict, plan_batch


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


def test_a_text_that_an_earlier_edit_wrote_may_be_changed_again() -> None:
    assert edited("a\nb\n", ("a", "new"), ("new\nb", "new\nB")) == "new\nB\n"
    assert edited("abcdef", ("bcd", "bXd"), ("bXd", "bYd")) == "abYdef"
    assert edited("f(a)\n", ("f(a)", "g(f(a))"), ("g(f(a))", "h(g(f(a)))"), ("(a)", "(a, b)")) == "h(g(f(a, b)))\n"


def test_a_text_that_a_deletion_joined_may_be_changed() -> None:
    assert edited("one two three\n", (" two", ""), ("one three", "1 3")) == "1 3\n"


def test_two_edits_in_what_an_earlier_one_wrote_are_both_made() -> None:
    assert (
        edited("x\n", ("x", "alpha beta gamma"), ("alpha", "A"), ("gamma", "C"), ("A beta C", "A B C!")) == "A B C!\n"
    )


def test_a_text_that_an_earlier_edit_destroyed_is_a_contradiction() -> None:
    with pytest.raises(EditsConflict, match="Edit 3 contradicts edit 1: its old_string was in the file and is gone"):
        edited("one two three\n", ("two", "2"), ("three", "3"), ("one two", "x"))


def test_a_swap_of_all_occurrences_is_ambiguous() -> None:
    document = Document.of(b"a b a b\n")
    edits = [Replacement("a", "b", everywhere=True), Replacement("b", "a", everywhere=True)]
    with pytest.raises(
        EditsConflict, match="Edit 2 is ambiguous: its old_string is in the file and also in what edit 1"
    ):
        plan_batch(document, edits)


def test_a_text_that_moved_by_two_edits_is_ambiguous() -> None:
    with pytest.raises(
        EditsConflict, match=r"Edit 3 is ambiguous: edit 1 changes the place .* and edit 2 writes that text"
    ):
        edited("A\nB;\n", ("B;", "C"), ("A", "B"), ("B", "D"))


def test_a_text_that_only_a_later_edit_writes_is_a_dependency() -> None:
    with pytest.raises(EditsConflict, match="Edit 1 depends on edit 2"):
        edited("a\nb\n", ("zzz", "y"), ("a", "zzz"))


def test_two_replacements_of_the_same_text_contradict() -> None:
    with pytest.raises(EditsConflict, match="Edits 1 and 3 contradict"):
        edited("a b\n", ("a", "x"), ("b", "c"), ("a", "y"))


def test_a_number_that_grows_twice_contradicts() -> None:
    with pytest.raises(EditsConflict, match="Edits 1 and 2 contradict"):
        edited("timeout = 10\n", ("timeout = 10", "timeout = 100"), ("timeout = 10", "timeout = 1000"))


def test_two_edits_may_insert_beside_the_same_line() -> None:
    pairs = ("import os", "import os\nimport sys"), ("import os", "import json\nimport os")
    assert edited("import os\n", *pairs) == "import json\nimport os\nimport sys\n"


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


def test_half_a_character_is_not_found_in_a_batch_either():
    document = Document(
        "か\u309aな".encode("euc_jis_2004"), Encoding("euc_jis_2004")
    )  # か with its mark is one character
    with pytest.raises(NotFound, match="inside a character"):
        plan_batch(document, [Replacement("な", "n"), Replacement("か", "k")])
