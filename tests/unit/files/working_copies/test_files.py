"""Copies of folders that somebody is working in."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from wieldy.files.working_copies import clone_or_copy, copy_tree, plain_copy


def make_tree(folder: Path) -> Path:
    for name in ("a", "b", "c/d", "e/f/g"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)
    (folder / "link").symlink_to("a")
    return folder


@pytest.mark.parametrize("copy_file", [plain_copy, clone_or_copy])
def test_what_vanishes_while_a_folder_is_copied_is_left_out(tmp_path: Path, copy_file):
    source, target = make_tree(tmp_path / "source"), tmp_path / "target"
    removed: list[str] = []

    def copy_and_remove_the_rest(file: str, to: str) -> None:
        """The first file is copied; then everything else goes, this one between its content and its times."""
        if not removed:
            removed.append(file)
            copy_file(file, to)
            shutil.rmtree(source)
            source.mkdir()
            (source / "new").write_text("new")
        copy_file(file, to)

    copy_tree(source, target, copy_and_remove_the_rest)
    assert not [path for path in target.rglob("*") if path.is_file() and path.name != "new"]


def test_a_folder_that_is_not_there_is_an_error(tmp_path: Path):
    with pytest.raises(FileNotFoundError):
        copy_tree(tmp_path / "missing", tmp_path / "target", plain_copy)


def test_a_target_that_vanishes_is_an_error(tmp_path: Path):
    source, target = make_tree(tmp_path / "source"), tmp_path / "target"

    def copy_without_target(file: str, to: str) -> None:
        shutil.rmtree(target, ignore_errors=True)
        plain_copy(file, to)

    with pytest.raises(FileNotFoundError):
        copy_tree(source, target, copy_without_target)
    assert os.listdir(source)
