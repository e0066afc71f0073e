"""A file that never grows beyond its cap."""

from __future__ import annotations

import os
import stat
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.shell.running.output import SpillFile


def test_what_fits_is_kept_byte_for_byte(tmp_path):
    spill = SpillFile(tmp_path / "deep" / "out", cap=100, tail=40)
    spill.write(b"a" * 70)
    spill.write(b"b" * 30)
    spill.finish()
    assert (tmp_path / "deep" / "out").read_bytes() == b"a" * 70 + b"b" * 30
    assert not spill.capped


def test_beyond_the_cap_beginning_and_end_remain_and_the_gap_is_named(tmp_path):
    spill = SpillFile(tmp_path / "out", cap=100, tail=40)
    spill.write(b"0" * 60)
    spill.write(b"x" * 1000)
    spill.write(bytes(range(40)))
    spill.finish()
    assert (tmp_path / "out").read_bytes() == b"0" * 60 + "\n[… 1000 bytes were not kept …]\n".encode() + bytes(
        range(40)
    )
    assert spill.capped


@given(st.lists(st.binary(max_size=70), max_size=12))
@settings(max_examples=100, deadline=None)
def test_any_way_of_cutting_the_stream_keeps_the_same_bytes(pieces):
    with tempfile.TemporaryDirectory() as folder:
        _check_kept(Path(folder, "out"), pieces)


def _check_kept(path: Path, pieces: list[bytes]) -> None:
    spill = SpillFile(path, cap=100, tail=40)
    for piece in pieces:
        spill.write(piece)
    spill.finish()
    whole = b"".join(pieces)
    kept = path.read_bytes() if path.exists() else b""
    if len(whole) <= 100:
        assert kept == whole
    else:
        assert kept.startswith(whole[:60])
        assert kept.endswith(whole[-40:])
        assert f"{len(whole) - 100} bytes" in kept.decode(errors="replace")


def test_the_file_is_never_larger_than_its_cap_while_it_is_written(tmp_path):
    spill = SpillFile(tmp_path / "out", cap=1000, tail=300)
    for _ in range(50):
        spill.write(b"y" * 333)
        assert sum(file.stat().st_size for file in tmp_path.iterdir()) <= 1000
    spill.finish()
    assert os.path.getsize(tmp_path / "out") < 1100
    assert [file.name for file in tmp_path.iterdir()] == ["out"]


def test_only_the_owner_may_read_it(tmp_path):
    spill = SpillFile(tmp_path / "folder" / "out")
    spill.write(b"secret")
    spill.finish()
    assert stat.S_IMODE(os.stat(tmp_path / "folder" / "out").st_mode) == 0o600
    assert stat.S_IMODE(os.stat(tmp_path / "folder").st_mode) == 0o700


def test_a_disk_that_refuses_ends_the_keeping_and_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    spill = SpillFile(tmp_path / "file" / "out")
    spill.write(b"lost")
    spill.write(b"lost too")
    spill.finish()
    assert spill.error
    assert spill.total == 0
