from __future__ import annotations

import codecs
from typing import Any

import pytest

from wieldy.files.detection import Encoding
from wieldy.files.reading.read_file import Page, describe_page


def page(**changed: Any) -> Page:
    usual = {
        "lines": ["a"],
        "first": 1,
        "total": 1,
        "counted": True,
        "complete": True,
        "size": 2,
        "encoding": Encoding("utf-8"),
    }
    fields = {**usual, "line_endings": "LF", "numbered": "", "data": b"a\n", **changed}
    return Page(**fields, last=fields["first"] + len(fields["lines"]) - 1)


@pytest.mark.parametrize(
    ("shown", "said"),
    [
        (page(), ""),
        (page(lines=[], total=0), "The file exists but is empty."),
        (page(lines=["a"] * 10, total=25), "Lines 1-10 of 25. Read on with offset=11."),
        (page(lines=["a"] * 5, first=21, total=25), "Lines 21-25 of 25: the end of the file."),
        (
            page(lines=[], first=9, total=3),
            "Nothing to show: the file has 3 lines, so offset=9 is beyond its end.",
        ),
        (
            page(lines=["a", "b"], total=900, counted=False, size=3_000_000_000),
            "Lines 1-2 of more than 900 (3 GB). Read on with offset=3.",
        ),
        (page(line_endings="CRLF"), "Line endings: CRLF."),
        (page(line_endings="mixed"), "Line endings: mixed."),
        (page(encoding=Encoding("gb18030")), "Encoding: gb18030."),
        (
            page(encoding=Encoding("cp1252", doubtful=True)),
            "Encoding: cp1252 (a guess; read again with `encoding` if characters look wrong).",
        ),
        (page(encoding=Encoding("utf-8", codecs.BOM_UTF8)), "The file starts with a UTF-8 byte order mark."),
        (
            page(encoding=Encoding("utf-16-le", codecs.BOM_UTF16_LE, valid=False)),
            "Encoding: utf-16-le with byte order mark, but some of it does not decode.",
        ),
        (
            page(encoding=Encoding("utf-8", valid=False), line_endings="CR"),
            "Some bytes are not valid UTF-8 and are shown as \N{REPLACEMENT CHARACTER}. Line endings: CR.",
        ),
    ],
)
def test_only_what_the_reader_could_miss_is_said(shown: Page, said: str) -> None:
    assert describe_page(shown) == said
