"""A batch is its edits made one after the other, or nothing."""

from __future__ import annotations

from itertools import islice

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document, Splice, apply_splices
from wieldy.files.editing.matching import Replacement, find_text
from wieldy.files.editing.revision import PieceTable, plan_batch

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
    edges = [edge for splice in batch.splices for edge in (splice.start, splice.end)]
    assert edges == sorted(edges)


@given(st.integers(1, 8), st.data())
@settings(max_examples=200, deadline=None)
def test_edits_that_each_fit_the_result_of_the_last_are_accepted(size: int, data: st.DataObject) -> None:
    """No word occurs twice, so that each edit can mean one place only, whether the file or an earlier edit wrote it."""
    fresh = (f"w{number:03}" for number in range(1000))
    words = list(islice(fresh, size))
    document = Document.of(" ".join(words).encode())
    edits: list[Replacement] = []
    for _ in range(data.draw(st.integers(1, 6))):
        if not words:
            break
        first = data.draw(st.integers(0, len(words) - 1))
        last = data.draw(st.integers(first + 1, len(words)))
        kept = words[first : first + data.draw(st.integers(0, min(1, last - first - 1)))]
        new = [*kept, *islice(fresh, data.draw(st.integers(0 if kept or len(words) > last - first else 1, 3)))]
        if not new:  # a space goes with the words
            last, new = (last + 1, words[last : last + 1]) if last < len(words) else (last, [next(fresh)])
        edits.append(Replacement(" ".join(words[first:last]), " ".join(new)))
        words[first:last] = new
    assert apply_splices(document.data, plan_batch(document, edits).splices).decode() == " ".join(words)


@given(st.text(st.sampled_from("ab\n"), min_size=1, max_size=12), st.data())
@settings(max_examples=200, deadline=None)
def test_a_piece_table_is_the_content_after_all_splices(text: str, data: st.DataObject) -> None:
    original = current = text.encode()
    pieces = PieceTable(len(original))
    for edit in range(1, data.draw(st.integers(1, 4)) + 1):
        edges = sorted(data.draw(st.lists(st.integers(0, len(current)), max_size=6)))
        pairs = zip(edges[::2], edges[1::2], strict=False)
        splices = [Splice(start, end, data.draw(st.binary(max_size=3))) for start, end in pairs]
        current = apply_splices(current, splices)
        pieces.apply(splices, edit)
        changes = [Splice(span.start, span.end, new) for span, new, _ in pieces.changes()]
        assert apply_splices(original, changes) == current
        assert all(span.end <= len(current) for span, _ in pieces.written())
