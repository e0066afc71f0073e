"""What a user without special rights may write. As root, a child process gives its rights up first."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.files.at_once import write_atomically

from wieldy.files.writing.disk import WriteError

NOBODY = 65534
SCRIPT = """
import os, sys
sys.path.insert(0, sys.argv[2])
from at_once import write_atomically
from wieldy.files.writing.disk import WriteError
import wieldy.files.writing.disk, pwd
if os.geteuid() == 0:
    os.setgroups([]); os.setgid(65534); os.setuid(65534)
try:
    print("written", *write_atomically(sys.argv[1], b"new").notes)
except WriteError as error:
    print("refused", error.number, error)
"""


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder of the one who will write; pytest's own is closed to others."""
    folder = Path(tempfile.mkdtemp(prefix="wieldy-rights-"))
    os.chmod(folder, 0o755)
    if os.geteuid() == 0:
        os.chown(folder, NOBODY, NOBODY)
    yield folder
    for inner in [folder, *folder.rglob("*/")]:
        os.chmod(inner, 0o755)
    shutil.rmtree(folder)


def put(path: Path, mode: int) -> Path:
    path.write_bytes(b"old")
    if os.geteuid() == 0:
        os.chown(path, NOBODY, NOBODY)
    os.chmod(path, mode)
    return path


def attempt(path: Path) -> str:
    child = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(path), str(Path(__file__).parents[1])],
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert child.returncode == 0, child.stderr
    return child.stdout


def test_a_read_only_file_is_refused_with_what_it_takes(place: Path):
    path = put(place / "a", 0o444)
    said = attempt(path)
    assert said.startswith("refused 13") and "mode 0444" in said and "write permission" in said
    assert path.read_bytes() == b"old" and os.listdir(place) == ["a"]


def test_a_file_in_a_folder_that_takes_no_new_files_is_written_in_place(place: Path):
    path = put(place / "a", 0o644)
    os.chmod(place, 0o555)
    said = attempt(path)
    assert said.startswith("written") and "its folder takes no new files" in said
    assert path.read_bytes() == b"new" and os.listdir(place) == ["a"]


def test_a_new_file_where_none_may_be_made_is_refused(place: Path):
    os.chmod(place, 0o555)
    for name in ("a", "x/y/a"):
        assert attempt(place / name).startswith("refused 13")
    assert os.listdir(place) == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can make a file that belongs to someone else")
def test_a_file_of_another_owner_is_written_in_place_and_stays_theirs(place: Path):
    path = put(place / "a", 0o666)
    os.chown(path, 0, 0)
    said = attempt(path)
    assert said.startswith("written") and "change its owner" in said
    assert path.read_bytes() == b"new" and path.stat().st_uid == 0 and os.listdir(place) == ["a"]


def test_an_immutable_file_is_refused_as_such(tmp_path: Path):
    path = tmp_path / "a"
    path.write_bytes(b"old")
    chattr = shutil.which("chattr")
    if chattr is None or subprocess.run([chattr, "+i", str(path)], capture_output=True).returncode != 0:
        pytest.skip("no file can be made immutable here")
    try:
        with pytest.raises(WriteError, match="immutable"):
            write_atomically(str(path), b"new")
        assert path.read_bytes() == b"old" and os.listdir(tmp_path) == ["a"]
    finally:
        subprocess.run([chattr, "-i", str(path)], check=True)


def test_a_program_that_is_running_is_replaced_and_runs_on(tmp_path: Path):
    sleep = shutil.which("sleep")
    assert sleep is not None
    path = tmp_path / "program"
    shutil.copy(sleep, path)
    running = subprocess.Popen([str(path), "30"])
    try:
        write_atomically(str(path), b"#!/bin/sh\n")
        assert running.poll() is None and path.read_bytes() == b"#!/bin/sh\n" and os.access(path, os.X_OK)
    finally:
        running.kill()
        running.wait()
