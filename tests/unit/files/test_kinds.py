from __future__ import annotations

import gzip
import io
import sqlite3
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from wieldy.files.detection import binary_kind


def zipped(*names: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in names:
            archive.writestr(name, "x")
    return held.getvalue()


def tarred() -> bytes:
    held = io.BytesIO()
    with tarfile.open(fileobj=held, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("name"))
    return held.getvalue()


def test_real_files_are_named(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "data.db")
    connection.execute("create table t (x)")
    connection.close()
    assert binary_kind((tmp_path / "data.db").read_bytes()) == "SQLite database"
    assert binary_kind(gzip.compress(b"text")) == "gzip data"
    assert binary_kind(zipped("a.txt")) == "ZIP archive"
    assert binary_kind(zipped("[Content_Types].xml", "word/document.xml")) == "Word document"
    assert binary_kind(zipped("[Content_Types].xml", "xl/workbook.xml")) == "Excel workbook"
    assert binary_kind(zipped("META-INF/MANIFEST.MF", "A.class")) == "Java archive"
    assert binary_kind(tarred()) == "tar archive"


@pytest.mark.skipif(sys.platform != "linux", reason="the interpreter is an ELF file on Linux only")
def test_a_program_is_named() -> None:
    with open(sys.executable, "rb") as program:
        assert binary_kind(program.read(8192)) == "ELF executable"


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR", "PNG image"),
        (b"RIFF\x10\0\0\0WEBPVP8 ", "WebP image"),
        (b"RIFF\x10\0\0\0WAVEfmt ", "WAV audio"),
        (b"%PDF-1.7\n", "PDF document"),
        (b"MZ\x90\0\x03\0", "Windows executable"),
        (b"\xca\xfe\xba\xbe\0\0\0\x41", "Java class"),
        (b"\0\0\0\x18ftypmp42", "MP4 media"),
        (b"\xa7\r\r\n\0\0\0\0", "Python bytecode"),
        (b"text and then \0 a nul", "binary data"),
        (b"\0", "binary data"),
        (b"x" * 8191 + b"\0", "binary data"),
        (b"abc\0\1\2def", "binary data"),
        (b"ab\0c", "binary data"),
        (b"PATH=/usr/bin\0HOME=/root\0", "binary data"),
        (b"key\0value\0\0", "binary data"),
        (b"\x01\0\x02\0text", "binary data"),
    ],
)
def test_signatures_and_nul_bytes_tell(head: bytes, name: str) -> None:
    assert binary_kind(head) == name


@pytest.mark.parametrize(
    "head",
    [
        b"",
        b"plain\n",
        b"MZ is how some words begin",
        b"BM and PACK and ID3 as well",
        b"caf\xe9",
        b"\x1b[31mred\x1b[0m",
        "text\n".encode("utf-16"),
        "text\n".encode("utf-16-le"),
        "text\n".encode("utf-16-be"),
        "text\n".encode("utf-32"),
        "text\n".encode("utf-32-be"),
        "漢字 and more\n".encode("utf-16-le"),
        "这是一个测试文件，里面有中文。\n第二行\n".encode("utf-16-le"),
        "日本語のテキストです。\nカタカナ\n".encode("utf-16-be"),
        "Привет, мир\n".encode("utf-16-le"),
        "naïve “quoted” — text\n".encode("utf-16-be"),
        b"x" * 8192 + b"\0",
    ],
)
def test_text_is_not_binary(head: bytes) -> None:
    assert binary_kind(head) is None
