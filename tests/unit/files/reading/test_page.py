from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.detection import Encoding
from wieldy.files.reading import MAX_CHARS
from wieldy.files.reading.read_file import COUNTED_AHEAD, OpenFile, Page, read_page


def page_of(path: Path, **how: Any) -> Page:
    with OpenFile(str(path)) as file:
        return read_page(file, **how)


def test_lines_carry_their_numbers(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\ntwo\n\tthree")
    page = page_of(path, first=2)
    assert page.numbered == "2\ttwo\n3\t\tthree"
    assert (page.first, page.last, page.total, page.complete) == (2, 3, 3, False)


def test_only_real_line_breaks_separate_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("a\x0bb\x0cc\x1cd\x85e\u2028f\n", newline="")
    assert page_of(path).lines == ["a\x0bb\x0cc\x1cd\x85e\u2028f"]


@pytest.mark.parametrize(
    ("data", "breaks"),
    [(b"a\nb\n", "LF"), (b"a\r\nb\r\n", "CRLF"), (b"a\rb\r", "CR"), (b"a\r\nb\n", "mixed"), (b"ab", "")],
)
def test_the_kind_of_line_break_is_told(tmp_path: Path, data: bytes, breaks: str) -> None:
    path = tmp_path / "file"
    path.write_bytes(data)
    page = page_of(path)
    assert page.line_endings == breaks
    assert "".join(page.lines) == "ab"


def test_a_byte_order_mark_is_not_part_of_the_first_line(tmp_path: Path) -> None:
    path = tmp_path / "file"
    for mark, codec in ((b"\xef\xbb\xbf", "utf-8"), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be")):
        path.write_bytes(mark + "ä\nb".encode(codec))
        page = page_of(path)
        assert page.lines == ["ä", "b"]
        assert page.encoding == Encoding(codec, mark)


def test_a_file_with_only_a_mark_has_no_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\xef\xbb\xbf")
    assert (page_of(path).lines, page_of(path).total) == ([], 0)


def test_a_page_beyond_the_end_knows_how_many_lines_there_are(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"a\nb\n")
    page = page_of(path, first=3)
    assert (page.lines, page.total, page.counted, page.last) == ([], 2, True, 2)


def test_a_line_of_ten_megabytes_is_cut_and_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"first\n" + "é".encode() * 10_000_000 + b"\nlast\n")
    page = page_of(path)
    assert page.lines[0] == "first"
    assert page.lines[1] == "é" * 2000 + "… [9998000 more characters in this line]"
    assert page.lines[2:] == ["last"]


def test_a_page_ends_before_it_grows_too_long_to_take_in(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes((b"x" * 999 + b"\n") * 1500)
    page = page_of(path)
    assert len(page.numbered) <= MAX_CHARS < len(page.numbered) + 1010
    assert page.total == 1500
    assert page_of(path, first=page.last + 1).first == page.last + 1


def test_an_enormous_limit_is_no_danger(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"\n" * 3_000_000)
    page = page_of(path, limit=10**12)
    assert page.total == 3_000_000
    assert len(page.numbered) <= MAX_CHARS


def test_the_rest_of_a_very_large_file_is_not_counted(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(b"a\nb\nc\n" + b"#" * 400_000 + b"\n")
        file.truncate(COUNTED_AHEAD * 4)
    page = page_of(path, limit=2)
    assert page.lines == ["a", "b"]
    assert not page.counted
    assert page.data is None


def test_the_encoding_of_a_large_file_shows_itself_in_its_lines(tmp_path: Path) -> None:
    path = tmp_path / "file"
    preface = b"plain words in a preface\n" * 20_000
    path.write_bytes(preface + "读取配置文件并初始化系统\n第二行：你好，世界\n".encode("gbk"))
    page = page_of(path, first=20_000, loaded=1000)
    assert page.encoding.name == "gb18030"
    assert page.lines == ["plain words in a preface", "读取配置文件并初始化系统", "第二行：你好，世界"]


def test_a_file_that_grows_while_it_is_read_comes_to_an_end(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"line\n" * 100_000)
    with OpenFile(str(path)) as file, open(path, "ab") as appender:

        def grows() -> bool:
            appender.write(b"more\n" * 100_000)
            appender.flush()
            return False

        page = read_page(file, loaded=1000, limit=3, stopped=grows)
    assert page.lines == ["line"] * 3
    assert not page.counted


def test_a_read_can_be_stopped_between_blocks(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"line\n" * 100_000)
    with pytest.raises(ToolFailure, match="stopped"):
        page_of(path, loaded=1000, first=90_000, stopped=lambda: True)


def test_a_file_made_up_by_the_kernel_is_read_though_it_says_it_is_empty() -> None:
    page = page_of(Path("/proc/self/status"))
    assert page.lines[0].startswith("Name:")
    assert page.complete


def test_a_file_made_up_by_the_kernel_that_does_not_end_is_refused() -> None:
    with pytest.raises(ToolFailure, match="gives data without end"):
        page_of(Path("/proc/self/status"), loaded=100)


@pytest.mark.skipif(sys.platform != "linux", reason="the address space is limited through Linux's RLIMIT_AS")
def test_a_line_larger_than_the_memory_is_paged(tmp_path: Path) -> None:
    path = tmp_path / "file"
    with open(path, "wb") as file:
        file.write(b"first\n" + b"x" * 300_000)
        file.truncate(400 << 20)
    program = (
        "import sys; from wieldy.files.reading.read_file import OpenFile; from wieldy.files.reading.read_file import read_page\n"
        "with OpenFile(sys.argv[1]) as file: page = read_page(file, first=2)\n"
        "assert page.total == 2 and page.lines[0].startswith('xxx'), page"
    )

    child = f"import resource; resource.setrlimit(resource.RLIMIT_AS, ({300 << 20}, {300 << 20}))\n{program}"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([sys.executable, "-c", child, str(path)], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
