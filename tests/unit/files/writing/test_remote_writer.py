"""Writes to a backend and to this machine in one commit: all of them or none."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest
from tests.fault_disks import DieAt, FailAt, SimulatedDeath, WatchedDisk

from wieldy import LocalBackend
from wieldy.core.filesystem import RemoteFileSystem
from wieldy.files.writing.disk import LOCAL_DISK, Disk, FileWrite, WriteError
from wieldy.files.writing.writers import RemoteWriter


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text("old")
    return tmp_path


def make_writer(folder: Path, disk: Disk = LOCAL_DISK) -> RemoteWriter:
    return RemoteWriter(RemoteFileSystem(LocalBackend(), [str(folder / "here")]), disk)


def plan(writer: RemoteWriter, folder: Path) -> list[FileWrite]:
    paths = [str(folder / name / "file") for name in ("here", "there")]
    return [writer.plan_write(writer.read_target(path), b"new") for path in paths]


def contents(folder: Path) -> list[str]:
    return [(folder / name / "file").read_text() for name in ("here", "there")]


def test_files_of_both_are_written_where_they_are(folder: Path) -> None:
    writer = make_writer(folder)
    writes = plan(writer, folder)
    written = writer.commit(writes)
    assert [file.real_path for file in written] == [write.real_path for write in writes]
    assert contents(folder) == ["new", "new"]


def test_a_file_here_that_cannot_be_written_leaves_those_there_as_they_were(folder: Path) -> None:
    writer = make_writer(folder, WatchedDisk(FailAt(1, errno.EROFS, calls=frozenset({"rename"}))))
    with pytest.raises(WriteError):
        writer.commit(plan(writer, folder))
    assert contents(folder) == ["old", "old"]


def test_recovery_brings_back_files_there_if_the_process_died_before_those_here_were_written(folder: Path) -> None:
    writer = make_writer(folder, WatchedDisk(DieAt("rename")))
    writes = plan(writer, folder)
    with pytest.raises(SimulatedDeath):
        writer.commit(writes)
    assert contents(folder) == ["old", "new"]
    assert make_writer(folder).recover(writes) is False
    assert contents(folder) == ["old", "old"]


def test_recovery_finds_a_commit_that_was_complete(folder: Path) -> None:
    writer = make_writer(folder)
    writes = plan(writer, folder)
    writer.commit(writes)
    assert make_writer(folder).recover(writes) is True
    assert contents(folder) == ["new", "new"]
