from __future__ import annotations

import errno
import os
import pathlib
import socket
from pathlib import Path

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.core.text import display_path
from wieldy.files.reading.read_file import HEAD, OpenFile


def test_a_directory_is_turned_away_with_the_tools_for_it(tmp_path: Path) -> None:
    with pytest.raises(ToolFailure, match=r"is a directory, not a file\. Use LS or Glob"):
        OpenFile(str(tmp_path))


def test_a_pipe_nobody_writes_to_is_turned_away_at_once(tmp_path: Path) -> None:
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with pytest.raises(ToolFailure, match=r"named pipe \(FIFO\)"):
        OpenFile(str(path))


def test_a_socket_is_turned_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # the name of a socket must be short
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("sock")
        with pytest.raises(ToolFailure, match="is a socket"):
            OpenFile("sock")


@pytest.mark.parametrize("device", ["/dev/zero", "/dev/null", "/dev/tty", "/dev/random"])
def test_devices_are_turned_away(device: str) -> None:
    with pytest.raises(ToolFailure, match="character device"):
        OpenFile(device)


def test_a_link_to_a_device_is_a_device(tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to("/dev/zero")
    with pytest.raises(ToolFailure, match="character device"):
        OpenFile(str(link))


def test_what_is_open_elsewhere_as_a_pipe_is_no_file() -> None:
    reader, writer = os.pipe()
    try:
        with pytest.raises(ToolFailure, match="named pipe"):
            OpenFile(f"/proc/self/fd/{reader}")
    finally:
        os.close(reader)
        os.close(writer)


def test_a_path_that_cannot_be_encoded_is_an_ordinary_error() -> None:
    with pytest.raises(OSError) as caught:
        OpenFile("/tmp/\ud800")
    assert caught.value.errno == errno.EINVAL


def test_a_name_that_is_not_utf8_opens(tmp_path: Path) -> None:
    path = os.path.join(os.fsencode(tmp_path), b"caf\xe9.txt")
    pathlib.Path(os.fsdecode(path)).write_bytes(b"x")
    with OpenFile(os.fsdecode(path)) as file:
        assert file.head == b"x"
    assert display_path(os.fsdecode(path)).endswith("caf\N{REPLACEMENT CHARACTER}.txt")


def test_the_descriptor_is_closed_and_not_inherited(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x")
    with OpenFile(str(path)):
        (mine,) = (fd for fd in os.listdir("/proc/self/fd") if fd_leads_to(fd, path))
        assert not os.get_inheritable(int(mine))
    assert not any(fd_leads_to(fd, path) for fd in os.listdir("/proc/self/fd"))


def fd_leads_to(descriptor: str, path: Path) -> bool:
    try:
        return os.readlink(f"/proc/self/fd/{descriptor}") == str(path)
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("size", [0, 1, HEAD - 1, HEAD, HEAD + 1, 3 * HEAD])
def test_all_bytes_come_whole_or_in_blocks(tmp_path: Path, size: int) -> None:
    path = tmp_path / "file"
    data = os.urandom(size)
    path.write_bytes(data)
    with OpenFile(str(path)) as file:
        assert file.read_all(size) == data
    with OpenFile(str(path)) as file:
        assert b"".join(file.read_blocks(1000)) == data


def test_a_file_larger_than_the_most_is_not_loaded_but_still_comes_in_blocks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 5000)
    with OpenFile(str(path)) as file:
        assert file.read_all(4999) is None
        assert b"".join(file.read_blocks(1000)) == b"x" * 5000


def test_a_file_that_outgrows_the_most_since_it_was_opened_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 10)
    with OpenFile(str(path)) as file:
        with open(path, "ab") as more:
            more.write(b"y" * 100)
        assert file.read_all(50) is None
        assert b"".join(file.read_blocks(7)) == b"x" * 10 + b"y" * 100
