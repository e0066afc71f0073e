"""Our three-way merge gives what `git merge-file` gives."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.files.editing.diff import merge

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


def merge_by_git(base: bytes, ours: bytes, theirs: bytes) -> tuple[bytes, int]:
    """The merged content and the number of conflicts, as `git merge-file` has them."""
    with tempfile.TemporaryDirectory() as folder:
        for name, data in (("ours", ours), ("base", base), ("theirs", theirs)):
            Path(folder, name).write_bytes(data)
        labels = ["-L", "your edit", "-L", "as read", "-L", "on disk"]
        env = {"PATH": os.environ["PATH"], "HOME": folder, "GIT_CONFIG_NOSYSTEM": "1"}
        argv = ["git", "merge-file", "-p", "-q", *labels, "ours", "base", "theirs"]
        run = subprocess.run(argv, cwd=folder, env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=60)
    assert 0 <= run.returncode <= 127
    return run.stdout, run.returncode


@given(EDITS, EDITS, st.sampled_from(["\n", "\r\n"]))
@settings(max_examples=150, deadline=None)
def test_what_git_merges_we_merge_alike_and_where_git_sees_a_conflict_so_do_we(
    ours: list[tuple[str, int, str]], theirs: list[tuple[str, int, str]], end: str
) -> None:
    base = "".join(BASE).replace("\n", end).encode()
    data, conflicts = merge_by_git(base, changed(ours, end), changed(theirs, end))
    merged = merge(base, changed(ours, end), changed(theirs, end))
    assert merged is not None
    assert merged.clean == (conflicts == 0)
    if merged.clean:
        assert merged.data == data


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize(
    ("base", "ours", "theirs"),
    [
        (b"a\nb\nc\n", b"a\nOURS\nc\n", b"a\nTHEIRS\nc\n"),
        (b"a\nb\nc\n", b"a\nc\n", b"a\nTHEIRS\nc\n"),
        (b"a\n", b"a\nOURS\n", b"a\nTHEIRS\n"),
        (b"a\nb", b"a\nOURS", b"a\nTHEIRS"),
    ],
)
def test_one_conflict_is_marked_as_git_marks_it(base: bytes, ours: bytes, theirs: bytes, end: bytes) -> None:
    contents = [data.replace(b"\n", end) for data in (base, ours, theirs)]
    merged = merge(*contents)
    assert merged is not None
    assert (merged.data, merged.conflicts) == merge_by_git(*contents)
