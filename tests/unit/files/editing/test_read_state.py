"""What the model has seen of a file, and whether that still holds."""

from __future__ import annotations

import os
import unicodedata
from pathlib import Path

import pytest

from wieldy.files.editing.read_state import ReadState


def see(state: ReadState, path: Path, first: int = 1, last: int = 3, complete: bool = True) -> None:
    state.record_read(str(path), data=path.read_bytes(), stat=path.stat(), first=first, last=last, complete=complete)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "a.txt"
    path.write_bytes(b"one\ntwo\nthree\n")
    return path


def test_a_file_never_read_is_unknown(file: Path) -> None:
    state = ReadState()
    assert state.reading(str(file)) is None
    assert not state.is_unchanged(str(file), 1, 3)
    assert not state.is_current(str(file), file.read_bytes(), file.stat())


def test_the_same_lines_of_the_same_content_are_unchanged(file: Path) -> None:
    state = ReadState()
    see(state, file)
    assert state.is_unchanged(str(file), 1, 3)
    assert state.is_unchanged(str(file), 2, 2)


def test_lines_not_shown_are_not_called_unchanged(file: Path) -> None:
    state = ReadState()
    see(state, file, 1, 1, complete=False)
    assert not state.is_unchanged(str(file), 1, 2)
    see(state, file, 2, 3, complete=False)
    assert state.is_unchanged(str(file), 1, 3)


def test_touching_a_file_changes_nothing(file: Path) -> None:
    state = ReadState()
    see(state, file)
    os.utime(file, ns=(1, 1))
    assert state.is_unchanged(str(file), 1, 3)
    assert state.is_current(str(file), file.read_bytes(), file.stat())


def test_one_changed_byte_is_seen_even_with_the_old_time_stamp_and_size(file: Path) -> None:
    state = ReadState()
    before = file.stat()
    see(state, file)
    file.write_bytes(b"one\ntwo\nthreX\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert not state.is_unchanged(str(file), 1, 3)
    assert not state.is_current(str(file), file.read_bytes(), file.stat())


def test_a_changed_file_read_again_forgets_the_old_lines(file: Path) -> None:
    state = ReadState()
    see(state, file, 1, 2, complete=False)
    file.write_bytes(b"uno\ndos\ntres\n")
    see(state, file, 3, 3, complete=False)
    assert not state.is_unchanged(str(file), 1, 2)
    assert state.is_unchanged(str(file), 3, 3)


def test_what_we_wrote_counts_as_read_but_was_not_shown(file: Path) -> None:
    state = ReadState()
    see(state, file)
    file.write_bytes(b"new\n")
    state.record_write(str(file), data=b"new\n", stat=file.stat())
    reading = state.reading(str(file))
    assert reading is not None and reading.written_by_us and reading.unseen(1) is None
    assert state.is_current(str(file), b"new\n", file.stat())
    assert not state.is_unchanged(str(file), 1, 1)


@pytest.mark.parametrize(
    ("shown", "unseen"),
    [([(1, 2)], (3, 9)), ([(4, 9)], (1, 3)), ([(1, 3), (6, 9)], (4, 5)), ([(1, 4), (5, 9)], None), ([], (1, 9))],
)
def test_the_first_unseen_stretch_is_named(
    tmp_path: Path, shown: list[tuple[int, int]], unseen: tuple[int, int] | None
) -> None:
    path = tmp_path / "nine"
    path.write_bytes(b"x\n" * 9)
    state = ReadState()
    see(state, path, 1, 0, complete=False)
    for first, last in shown:
        see(state, path, first, last, complete=False)
    reading = state.reading(str(path))
    assert reading is not None and reading.unseen(9) == unseen
    assert reading.knows_all(lambda: 9) is (unseen is None)


def test_relative_absolute_and_symlinked_spellings_are_one_file(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = ReadState()
    link = tmp_path / "link"
    link.symlink_to(file)
    monkeypatch.chdir(tmp_path)
    see(state, file)
    for spelling in ("a.txt", "./a.txt", str(link), f"{tmp_path}//./a.txt"):
        assert state.is_unchanged(spelling, 1, 3), spelling


@pytest.mark.parametrize(
    ("one", "other"), [("Name.txt", "name.TXT"), (unicodedata.normalize("NFC", "é"), unicodedata.normalize("NFD", "é"))]
)
def test_spellings_that_lead_to_the_same_file_are_one_entry(tmp_path: Path, one: str, other: str) -> None:
    first = tmp_path / one
    first.write_bytes(b"x\n")
    # A hard link stands in for a volume that folds case and Unicode forms: two names, one inode.
    os.link(first, tmp_path / other)
    state = ReadState()
    see(state, first, 1, 1)
    assert state.reading(str(tmp_path / other)) == state.reading(str(first))


def test_spellings_of_different_files_stay_apart(tmp_path: Path) -> None:
    (tmp_path / "Name").write_bytes(b"x\n")
    (tmp_path / "name").write_bytes(b"x\n")
    state = ReadState()
    see(state, tmp_path / "Name", 1, 1)
    assert state.reading(str(tmp_path / "name")) is None


def test_contents_are_kept_within_the_budget_and_judged_by_fingerprint_beyond_it(tmp_path: Path) -> None:
    state = ReadState(memory=100)
    files = [tmp_path / str(n) for n in range(5)]
    for n, path in enumerate(files):
        path.write_bytes(bytes([65 + n]) * 40)
        see(state, path, 1, 1)
    held = [path for path in files if state.content(str(path)) is not None]
    assert held == files[3:]
    for path in files:
        assert state.is_current(str(path), path.read_bytes(), path.stat())
        assert not state.is_current(str(path), b"z" * 40, path.stat())


def test_the_content_asked_for_last_is_kept_longest(tmp_path: Path) -> None:
    state = ReadState(memory=100)
    for name in "ab":
        (tmp_path / name).write_bytes(b"x" * 40)
        see(state, tmp_path / name, 1, 1)
    assert state.content(str(tmp_path / "a")) is not None
    (tmp_path / "c").write_bytes(b"y" * 40)
    see(state, tmp_path / "c", 1, 1)
    assert state.content(str(tmp_path / "a")) is not None
    assert state.content(str(tmp_path / "b")) is None


def test_a_file_too_large_to_load_is_judged_by_its_stamp(file: Path) -> None:
    state = ReadState()
    state.record_read(str(file), data=None, stat=file.stat(), first=1, last=2, complete=False)
    assert state.is_unchanged(str(file), 1, 2)
    os.utime(file, ns=(1, 1))
    assert not state.is_unchanged(str(file), 1, 2)


def test_a_forgotten_file_is_unknown_again(file: Path) -> None:
    state = ReadState()
    see(state, file)
    state.forget(str(file))
    assert state.reading(str(file)) is None and state.content(str(file)) is None
    see(state, file)
    assert state.is_unchanged(str(file), 1, 3)


def test_a_vanished_file_is_not_unchanged(file: Path) -> None:
    state = ReadState()
    see(state, file)
    file.unlink()
    assert not state.is_unchanged(str(file), 1, 3)
