"""A batch is its edits made one after the other, or nothing."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document
from wieldy.files.editing.matching import Replacement, find_text
from wieldy.files.editing.replacements import plan_batch
from wieldy.files.editing.splicing import apply_splices

TEXTS = st.text(st.sampled_from("abcdefgh\n"), min_size=1, max_size=30)
EDITS = st.builds(
    Replacement,
    old=st.text(st.sampled_from("abcdefgh\n"), min_size=1, max_size=3),
    new=st.text(st.sampled_from("abcxyz\n"), max_size=3),
    everywhere=st.booleans(),
)


@given(TEXTS, st.lists(EDITS, min_size=1, max_size=4))
@settings(max_examples=300, deadline=None)
def test_an_accepted_batch_equals_its_edits_in_order(text: str, edits: list[Replacement]) -> None:
    document = Document.of(text.encode())
    try:
        batch = plan_batch(document, edits)
    except ToolFailure:
        return
    one_by_one = document.data
    for edit in edits:
        current = Document.of(one_by_one)
        one_by_one = apply_splices(one_by_one, find_text(current, edit).splices)
    assert apply_splices(document.data, batch.splices) == one_by_one
    starts = [splice.start for splice in batch.splices]
    assert starts == sorted(starts)
