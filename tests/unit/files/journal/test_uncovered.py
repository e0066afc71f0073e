"""What undo does not cover, named in few words and without leaving anything out."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from wieldy.files.journal.entries import (
    MAX_FOLDERS,
    MAX_PATHS,
    Uncovered,
    enclosing_folders,
    limit_uncovered,
    summarize_uncovered,
)

PATHS = st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=4).map(lambda parts: "/" + "/".join(parts)))


@given(PATHS, st.integers(1, 10))
def test_every_path_is_named_or_lies_in_a_folder_that_is(paths, most):
    folders = enclosing_folders(paths, most)
    assert len(folders) <= max(most, 1)
    for path in paths:
        assert any(path == folder or path.startswith(folder.rstrip("/") + "/") for folder in folders)


def test_a_long_list_names_what_changed_first_and_folders_for_the_rest():
    unwatched = [Uncovered(f"/p/unwatched/{n}", "not looked at", False) for n in range(MAX_PATHS)]
    changed = [Uncovered(f"/p/changed/{n}", "too large") for n in range(MAX_PATHS + 100)]
    limited = limit_uncovered((*unwatched, *changed))
    assert len(limited) <= MAX_PATHS + 2 * MAX_FOLDERS
    assert all(each.changed for each in limited[:MAX_PATHS])
    assert [(each.path, each.changed) for each in limited[MAX_PATHS:]] == [
        ("/p/changed", True),
        ("/p/unwatched", False),
    ]


def test_a_summary_has_one_phrase_for_each_reason():
    uncovered = [*(Uncovered(f"/p/{n}", "too large") for n in range(5)), Uncovered("/q", "a link")]
    assert summarize_uncovered(uncovered, "/p") == "0, 1, 2 and 2 more (too large); /q (a link)"
