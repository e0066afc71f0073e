from __future__ import annotations

import os
from pathlib import Path

import pytest

from wieldy.files.reading.read_file import SMALL_FILE, OpenFile, is_plain_text, open_small_file


def test_only_small_regular_files_are_small(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(b"x" * (SMALL_FILE - 1))
    (tmp_path / "large").write_bytes(b"x" * SMALL_FILE)
    (tmp_path / "empty").touch()
    os.mkfifo(tmp_path / "pipe")
    file = open_small_file("small", str(tmp_path / "small"))
    assert file is not None
    with file:
        assert file.read_all(SMALL_FILE) == b"x" * (SMALL_FILE - 1)
    for path in (
        *(tmp_path / name for name in ("large", "empty", "pipe", "missing", "")),
        "/proc/self/status",
        "\ud800",
    ):
        assert open_small_file(str(path), str(path)) is None


@pytest.mark.parametrize(
    ("name", "data", "plain"),
    [
        ("a.txt", b"text", True),
        ("a.txt", "größer\n".encode(), True),
        ("a.txt", b"gr\xf6\xdfer", False),
        ("a.txt", b"a\0b", False),
        ("a.png", b"\x89PNG\r\n\x1a\n", False),
        ("a.ipynb", b"{}", False),
    ],
)
def test_whatever_needs_more_than_cutting_lines_is_not_plain(
    tmp_path: Path, name: str, data: bytes, plain: bool
) -> None:
    (tmp_path / name).write_bytes(data)
    with OpenFile(str(tmp_path / name)) as file:
        assert is_plain_text(file) is plain
