from __future__ import annotations

import codecs

import pytest

from wieldy.web.page import decode_page

FRENCH = "Le café où l'on mangeait des crêpes était fermé à Noël."
JAPANESE = "これは日本語の文章です。漢字とひらがなが混ざっています。"
RUSSIAN = "Съешь ещё этих мягких французских булок, да выпей чаю."


@pytest.mark.parametrize(
    ("text", "codec", "header"),
    [
        (FRENCH, "utf-8", "utf-8"),
        (FRENCH, "cp1252", "ISO-8859-1"),
        ("“quoted” – 5 €", "cp1252", "iso-8859-1"),
        ("“quoted” – 5 €", "cp1252", '"windows-1252"'),
        (JAPANESE, "cp932", "Shift_JIS"),
        (JAPANESE, "euc_jp", "EUC-JP"),
        (RUSSIAN, "koi8-r", "KOI8-R"),
        ("汉字镕", "gb18030", "gb2312"),
    ],
)
def test_the_header_is_believed_where_the_bytes_agree(text: str, codec: str, header: str) -> None:
    assert decode_page(text.encode(codec), header) == text


@pytest.mark.parametrize("header", ["utf-8", "no-such-charset", None, "rot13", "unicode_escape", "utf-7", "hex"])
def test_a_wrong_header_is_not_believed(header: str | None) -> None:
    assert decode_page(RUSSIAN.encode("cp1251") * 5, header) == RUSSIAN * 5


def test_utf8_under_a_false_name_of_many_bytes_is_still_read() -> None:
    assert decode_page((JAPANESE * 3).encode(), "ascii-8bit") == JAPANESE * 3


def test_a_mark_wins_over_everything_and_is_not_shown() -> None:
    assert decode_page(codecs.BOM_UTF8 + FRENCH.encode(), "koi8-r") == FRENCH
    assert decode_page(codecs.BOM_UTF16_LE + FRENCH.encode("utf-16-le"), "utf-8") == FRENCH


@pytest.mark.parametrize(
    "meta",
    [
        '<meta charset="windows-1251">',
        "<META http-equiv=Content-Type content='text/html; charset=windows-1251'>",
        '<?xml version="1.0" encoding="windows-1251"?>',
    ],
)
def test_a_page_may_name_its_charset_itself(meta: str) -> None:
    page = f"{meta}<p>Да"
    assert decode_page(page.encode("cp1251"), None, markup=True) == page


def test_a_page_that_claims_to_be_wide_is_not_when_it_can_be_read() -> None:
    page = f'<meta charset="utf-16"><p>{FRENCH}'
    assert decode_page(page.encode(), None, markup=True) == page


def test_some_broken_bytes_do_not_spoil_the_rest() -> None:
    text = decode_page((FRENCH * 3).encode() + b"\xff tail", "utf-8")
    assert text == FRENCH * 3 + "\N{REPLACEMENT CHARACTER} tail"
    assert decode_page(JAPANESE.encode()[:-1], "utf-8")[:-1] == JAPANESE[:-1]
    assert decode_page(b"", "utf-8") == ""
