"""Records written down and read again: whatever the names in them are."""

from __future__ import annotations

import json

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.journal.entries import Entry, PathRecord, decode, encode

# As the system's file names are: any bytes but some, those that are no UTF-8 as halves of characters.
NAMES = st.binary(max_size=12).map(lambda name: name.decode("utf-8", "surrogateescape")) | st.text(max_size=12)
MAYBE = st.none() | NAMES
PATHS = st.builds(
    PathRecord,
    path=NAMES,
    real_path=NAMES,
    before=MAYBE,
    after=MAYBE,
    mode=st.none() | st.integers(0, 0o7777),
    temp=NAMES,
    backup=NAMES,
    folders=st.lists(NAMES, max_size=3).map(tuple),
)
ENTRIES = st.builds(
    Entry,
    id=NAMES,
    kind=st.sampled_from(["edit", "snapshot", "undo", "redo"]),
    session=NAMES,
    call_id=NAMES,
    tool=NAMES,
    at=st.floats(0, 1e11),
    paths=st.lists(PATHS, max_size=3).map(tuple),
    turn=MAYBE,
    reverses=st.lists(NAMES, max_size=3).map(tuple),
    covered=NAMES,
)


@settings(max_examples=300, deadline=None)
@given(ENTRIES)
def test_an_entry_is_read_as_it_was_written(entry: Entry) -> None:
    payload = encode(entry)
    assert decode(payload) == entry
    assert json.loads(payload.decode("utf-8"))["call_id"] == entry.call_id
