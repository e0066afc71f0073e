"""Our three-way merge beside git's."""

from __future__ import annotations

import shutil

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.merging import merge

pytestmark = [
    pytest.mark.peer,
    pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed"),
]

BASE = [f"line {n}\n" for n in range(12)]
EDITS = st.lists(
    st.tuples(st.sampled_from(["replace", "delete", "insert"]), st.integers(0, 11), st.sampled_from("xyz")),
    max_size=3,
)


def changed(edits: list[tuple[str, int, str]], end: str) -> bytes:
    lines = list(BASE)
    for kind, at, mark in sorted(edits, key=lambda edit: -edit[1]):
        new = f"{mark} {at}\n"
        if kind == "insert":
            lines.insert(at, new)
        else:
            lines[at : at + 1] = [new] if kind == "replace" else []
    return "".join(lines).replace("\n", end).encode()


@given(EDITS, EDITS, st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=80, deadline=None)
def test_what_git_merges_we_merge_alike_and_where_git_sees_a_conflict_so_do_we(
    ours: list[tuple[str, int, str]], theirs: list[tuple[str, int, str]], end: str
) -> None:
    base = "".join(BASE).replace("\n", end).encode()
    by_git = merge(base, changed(ours, end), changed(theirs, end))
    by_us = merge(base, changed(ours, end), changed(theirs, end), git=False)
    assert by_git is not None and by_us is not None
    assert by_us.clean == by_git.clean
    if by_git.clean:
        assert by_us.data == by_git.data


def test_one_conflict_is_marked_as_git_marks_it() -> None:
    base, ours, theirs = b"a\nb\nc\n", b"a\nOURS\nc\n", b"a\nTHEIRS\nc\n"
    by_git, by_us = merge(base, ours, theirs), merge(base, ours, theirs, git=False)
    assert by_git is not None and by_us is not None
    assert by_git.data == by_us.data
    assert by_git.conflicts == by_us.conflicts == 1
