"""Only the bytes of the change are new; the new text takes the file's encoding and line ends."""

from __future__ import annotations

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.detection import Encoding
from wieldy.files.editing.document import Document, apply_splices, replace_span, replace_text


def edit(data: bytes, old: str, new: str) -> bytes:
    document = Document.of(data)
    document.codec.require(new)
    return apply_splices(data, [replace_span(document, span, new) for span in document.find(old)])


def test_a_latin_1_byte_outside_the_edit_stays_as_it_is() -> None:
    assert edit(b"const x = 1;\n// caf\xe9 note\n", "x = 1", "x = 2") == b"const x = 2;\n// caf\xe9 note\n"


def test_one_cp1252_byte_in_a_header_stays_as_it_is() -> None:
    assert edit(b"// \xa9 2020 Someone\nint a;\n", "int a", "long a") == b"// \xa9 2020 Someone\nlong a;\n"


@pytest.mark.parametrize(
    ("codec", "before", "old", "new", "after"),
    [
        (
            "cp932",
            "こんにちは世界、表示能力の説明\n価格は\n" * 9 + "終わり",
            "終わり",
            "始まり表",
            None,
        ),
        ("gb18030", "你好，世界。这是一个测试文件\n" * 9 + "结束", "结束", "开始", None),
        ("cp1251", "Привет, мир. Это проверка кодировки\n" * 9 + "конец", "конец", "начало", None),
        ("utf-8-sig", "a\nb\n", "b", "é", "a\né\n"),
        ("utf-16-le", "\ufeffa\nb\n", "b", "\U0001f600", "\ufeffa\n\U0001f600\n"),
        ("utf-16-be", "\ufeffa\r\nb\r\n", "b", "c\nd", "\ufeffa\r\nc\r\nd\r\n"),
        ("utf-32-le", "\ufeffa\nb\n", "a\nb", "b\na", "\ufeffb\na\n"),
    ],
)
def test_new_text_is_written_in_the_encoding_of_the_file(
    codec: str, before: str, old: str, new: str, after: str | None
) -> None:
    wanted = before.replace(old, new) if after is None else after
    assert edit(before.encode(codec), old, new) == wanted.encode(codec)


@pytest.mark.parametrize(
    ("before", "old", "new", "after"),
    [
        (b"a\r\nb\nc", "c", "C", b"a\r\nb\nC"),
        (b"alpha\nbeta\r\ngamma\n", "alpha", "ALPHA\nx", b"ALPHA\nx\nbeta\r\ngamma\n"),
        (b"alpha\nbeta\r\ngamma\n", "beta", "BETA\nx", b"alpha\nBETA\r\nx\r\ngamma\n"),
        (b"alpha\nbeta\r\ngamma\n", "alpha\nbeta\ngamma", "alpha\nbeta\nx\ngamma", b"alpha\nbeta\r\nx\ngamma\n"),
        (b"start\n10%\r50%\r100%\ndone\n", "done", "end\nreally", b"start\n10%\r50%\r100%\nend\nreally\n"),
        (b"start\n10%\r50%\r100%\ndone\n", "10%␍50%", "20%␍50%", b"start\n20%\r50%\r100%\ndone\n"),
        (b"start\n10%\r50%\r100%\ndone\n", "10%␍50%", "10%␍␍50%", b"start\n10%\r\r50%\r100%\ndone\n"),
        (b"a\rb\nc\n", "a␍b\nc", "a␍\nc", b"a\r\r\nc\n"),
        (b"p a\rb \nq\r\n", "a␍b \n", "$␍␍b", b"p $\r\rbq\r\n"),
        (b"p a\rb \nq\r\n", "a␍b \n", "$␍\n\n", b"p $\r\r\n\nq\r\n"),
        (b"a\rb\n\nc\r", "b", "b\n", b"a\rb\n\n\nc\r"),
        (b"a\rb\n", "b", "", b"a\r\r\n"),
        (b"a\rb\n", "b", "\nc", b"a\r\r\nc\n"),
        (b"ab\n", "b", "␍", "a␍\n".encode()),
        (b"a\rb\n", "b", "\n␍", b"a\r\r\n\r\r\n"),
        ("a␍b\rc\n".encode(), "a␍b", "x␍b", "x␍b\rc\n".encode()),
        ("a␍b\rc\n".encode(), "b␍c", "c␍x", "a␍c\rx\n".encode()),
        ("␍ a\rb\n".encode(), "a␍b", "a␍c␍d", "␍ a\rc\rd\n".encode()),
        ("␍ a\rb\n".encode(), "b", "␍", "␍ a\r␍\n".encode()),
        (b"a\r\nb\r\nc\r\n", "b\n", "B\n", b"a\r\nB\r\nc\r\n"),
        (b"a\r\nb\r\nc\r\n", "b\r\n", "B\r\n", b"a\r\nB\r\nc\r\n"),
        (b"a\nb\n", "b\n", "B\r\nC\r\n", b"a\nB\nC\n"),
        (b"a\rb\rc\r", "b", "B\nB", b"a\rB\rB\rc\r"),
        (b"a\r\nlast", "last", "last\nmore", b"a\r\nlast\r\nmore"),
        (b"only", "only", "only\nmore", b"only\nmore"),
        (b"a\r\n\r\nb\n", "a\n\nb", "a\nx\nb", b"a\r\nx\r\nb\n"),
    ],
)
def test_line_ends_are_kept_and_new_ones_follow_their_neighbours(
    before: bytes, old: str, new: str, after: bytes
) -> None:
    assert edit(before, old, new) == after


def test_two_line_ends_are_not_found_in_one_crlf() -> None:
    assert list(Document.of(b"a\r\nb").find("a\n\nb")) == []


@pytest.mark.parametrize("new", ['log("$& ok")', "$$", "$`", "$1", r"\1", "\\\\", r"\g<0>", "\\n"])
def test_the_replacement_is_literal(new: str) -> None:
    assert edit(b"x = old;\r\n", "old", new) == b"x = " + new.encode() + b";\r\n"


def test_a_match_across_the_bytes_of_two_characters_is_none() -> None:
    # In cp932 the second byte of 表 is a backslash.
    document = Document.of("これは表示です。日本語の文章を表す\n".encode("cp932"))
    assert document.encoding.name == "cp932"
    assert list(document.find("\\")) == []
    assert len(list(document.find("表"))) == 2


def test_characters_the_encoding_lacks_are_named_with_their_place() -> None:
    with pytest.raises(ToolFailure, match=r"'€' \(U\+20AC, line 2, column 3\).*iso8859-1|.*€.*") as failure:
        Document(b"caf\xe9", Encoding("iso8859-1")).codec.require("a\nb €")
    assert "U+20AC, line 2, column 3" in failure.value.message and "iso8859-1" in failure.value.message


def test_half_a_surrogate_pair_is_refused_instead_of_written_as_a_raw_byte() -> None:
    with pytest.raises(ToolFailure, match=r"U\+DCE9"):
        edit(b"abc", "b", "\udce9")


def test_an_odd_last_byte_of_a_wide_text_is_kept() -> None:
    data = "\ufeffab".encode("utf-16-le") + b"\x41"
    assert edit(data, "b", "xyz") == "\ufeffaxyz".encode("utf-16-le") + b"\x41"


def test_the_whole_text_is_replaced_by_its_least_change() -> None:
    document = Document.of(b"\xef\xbb\xbfone\r\ntwo\r\nthree\r\n")
    change = replace_text(document, "one\n2\nthree\n")
    assert (change.start, change.end, change.new) == (8, 11, b"2")


@pytest.mark.parametrize(
    ("data", "offset", "number"),
    [(b"a\nb\nc", 0, 1), (b"a\nb\nc", 2, 2), (b"a\rb\rc", 4, 3), (b"a\nb\rc", 4, 2), (b"a\r\nb\rc", 5, 2)],
)
def test_lines_are_counted_by_the_line_ends_of_the_file(data: bytes, offset: int, number: int) -> None:
    assert Document.of(data).line_number(offset) == number


@pytest.mark.parametrize(
    ("codec", "end"), [("utf-8", "\r\n"), ("utf-8", "\n"), ("utf-16-le", "\r\n"), ("cp932", "\r\n")]
)
def test_places_far_into_a_large_text_are_found_at_their_bytes(codec: str, end: str) -> None:
    text = "".join(f"行 {n} の内容 é{end}" if codec != "cp932" else f"行 {n} の内容{end}" for n in range(9_000))
    document = Document(text.encode(codec), Encoding(codec))
    for wanted in ("行 1 の", "行 4500 の内容", "行 8999"):
        (span,) = document.find(wanted)
        assert span.start == len(text[: text.index(wanted)].encode(codec))
        assert document.line_number(span.start) == int(wanted.split()[1]) + 1


def test_it_is_refused_to_guess_whether_a_carriage_return_is_meant() -> None:
    with pytest.raises(ToolFailure, match="both carriage returns and the character"):
        edit("a␍b\rc\n".encode(), "␍b␍", "␍x␍y␍")
