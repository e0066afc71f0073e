"""Laws of the journal: what is done can be undone and redone, and what fails was never done."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.fault_disks import FailAt, UnsyncedDisk
from tests.unit.files.at_once import start_now

from wieldy.core.workspace import Workspace
from wieldy.files.apply_edit import write_changes
from wieldy.files.journal.entries import ChangeOrigin, FileChange
from wieldy.files.journal.journal import Journal
from wieldy.files.journal.undo import UndoSelector, history, redo, undo
from wieldy.files.writing.disk import Disk, WriteError

NAMES = ["a", "b", "linked", "twin", "in/side", "in/deep/er", "new/one", "link"]
content = st.one_of(st.binary(max_size=40), st.sampled_from([b"", b"x\n" * 3000, b"same"]))
trees = st.dictionaries(st.sampled_from(["a", "b", "linked", "in/side"]), content)
wishes = st.dictionaries(st.sampled_from(NAMES), st.none() | content, min_size=1, max_size=4)
FAST = UnsyncedDisk(max_bytes=1 << 20)


def lay_out(root: Path, tree: Mapping[str, bytes]) -> None:
    root.mkdir()
    for name, data in tree.items():
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_bytes(data)
    if "linked" in tree:
        os.link(root / "linked", root / "twin")
    if "b" in tree:
        (root / "link").symlink_to("b")


def picture(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    seen: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        data = os.readlink(path) if path.is_symlink() else path.read_bytes() if path.is_file() else None
        seen[str(path.relative_to(root))] = path.lstat().st_mode, data
    return seen


def journal_of(root: Path, disk: Disk = FAST) -> Journal:
    return Journal(Workspace(root, session_dir=root, env={"WIELDY_HOME": str(root.parent / "home")}), disk=disk)


def changes_for(root: Path, wish: Mapping[str, bytes | None]) -> list[FileChange]:
    """The wish as changes; of two names for one file the first is taken."""
    found: dict[str, FileChange] = {}
    files: set[object] = set()
    for name, after in wish.items():
        path = os.path.join(root, name)
        exists = os.path.exists(path)
        file = (os.stat(path).st_dev, os.stat(path).st_ino) if exists else os.path.realpath(path)
        # One of several names, once removed, comes back as a file of its own: no undo can know the others.
        if file in files or (after is None and (not exists or os.stat(path).st_nlink > 1)):
            continue
        files.add(file)
        found[name] = FileChange(path, Path(path).read_bytes() if exists else None, after)
    return list(found.values())


def apply(journal: Journal, root: Path, call: str, wish: Mapping[str, bytes | None]) -> None:
    write_changes(journal, changes_for(root, wish), ChangeOrigin("s", call, "Edit"))


def files(seen: dict[str, tuple[int, bytes | str | None]]) -> dict[str, tuple[int, bytes | str | None]]:
    """A picture without its folders: an empty folder is nothing that a redo brings back."""
    return {name: (mode, data) for name, (mode, data) in seen.items() if data is not None}


@settings(max_examples=60, deadline=None)
@given(trees, st.lists(wishes, min_size=1, max_size=4))
@example({}, [{"in/side": b""}, {"in/deep/er": b""}, {"in/deep/er": None}])
def test_undoing_every_change_gives_the_tree_before_and_redoing_the_tree_after(
    tree: dict[str, bytes], batches: list[dict[str, bytes | None]]
):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        root = Path(place, "project")
        lay_out(root, tree)
        journal = journal_of(root)
        pictures = [picture(root)]
        for number, wish in enumerate(batches):
            apply(journal, root, f"call {number}", wish)
            if picture(root) != pictures[-1]:
                pictures.append(picture(root))
        done = len(pictures) - 1
        assert [entry.call_id for entry in history(journal)] == sorted(
            (entry.call_id for entry in history(journal)), reverse=True
        )
        for state in reversed(pictures[:-1]):
            undo(journal_of(root))
            assert picture(root) == state
        for state in pictures[1:]:
            redo(journal_of(root))
            assert files(picture(root)) == files(state)
        if done:
            undo(journal, UndoSelector(everything=True))
            assert picture(root) == pictures[0]
            redo(journal)
            assert files(picture(root)) == files(pictures[-1])


@settings(max_examples=60, deadline=None)
@given(trees, wishes, st.integers(1, 40), st.sampled_from([errno.ENOTCONN, errno.EIO, errno.EROFS, errno.EACCES]))
def test_a_change_that_fails_at_any_call_was_never_made(
    tree: dict[str, bytes], wish: dict[str, bytes | None], nth: int, number: int
):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as place:
        root = Path(place, "project")
        lay_out(root, tree)
        before = picture(root)
        fault = FailAt(nth, number)
        journal = journal_of(root, UnsyncedDisk(fault, max_bytes=4096))
        try:
            apply(journal, root, "call", wish)
        except WriteError:
            assert fault.has_failed and picture(root) == before
            assert history(journal_of(root)) == ()
            start_now(journal_of(root))
            assert picture(root) == before
        else:
            start_now(journal_of(root))
            after = picture(root)
            assert not [name for name in after if ".wieldy-" in name]
            if after != before:
                undo(journal_of(root))
                assert picture(root) == before
