"""A file keeps the encoding it was read in; a doubtful guess is said, and confirmed before it decides what is written."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio
PO = 'msgid "Open"\nmsgstr "Otwórz"\n\nmsgid "Error while opening"\nmsgstr "Błąd podczas otwierania ścieżki"\n'


@pytest_asyncio.fixture
async def box(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toolbox]:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "root").mkdir()
    async with Toolbox(tmp_path / "root", settings={}, mode="bypassPermissions") as toolbox:
        yield toolbox


@pytest.fixture
def file(tmp_path: Path, box: Toolbox) -> Path:
    return tmp_path / "root" / "a.txt"


async def read(box: Toolbox, **more: Any) -> ToolResult:
    return await box.call("Read", {"file_path": "a.txt", **more})


async def edit(box: Toolbox, old: str, new: str, **more: Any) -> ToolResult:
    return await box.call("Edit", {"file_path": "a.txt", "old_string": old, "new_string": new, **more})


async def write(box: Toolbox, content: str, **more: Any) -> ToolResult:
    return await box.call("Write", {"file_path": "a.txt", "content": content, **more})


async def test_our_own_edits_never_change_the_encoding_a_file_is_taken_for(file: Path, box: Toolbox) -> None:
    file.write_bytes(PO.encode("iso8859-2"))
    shown = await read(box, encoding="iso8859-2")
    assert "Błąd podczas otwierania ścieżki" in shown.text
    # What is left by the first edits is no evidence for iso8859-2 any more.
    assert not (await edit(box, "Błąd podczas otwierania ścieżki", "Otwarcie")).is_error
    assert not (await edit(box, "Otwórz", "otworz")).is_error
    assert file.read_bytes().isascii()
    assert not (await edit(box, '"Otwarcie"', '"ścieżka źródła"')).is_error
    assert '"ścieżka źródła"' in file.read_bytes().decode("iso8859-2")
    again = await read(box)
    assert "ścieżka źródła" in again.text and again.data["file"]["encoding"] == "iso8859-2"
    assert not (await write(box, "ą\n")).is_error
    assert file.read_bytes() == "ą\n".encode("iso8859-2")


async def test_multi_edit_keeps_the_encoding_too(file: Path, box: Toolbox) -> None:
    file.write_bytes(b"a\nb\nsch\xf6n\n")
    edits = [{"old_string": "a\n", "new_string": "ś\n"}, {"old_string": "b\n", "new_string": "ą\n"}]
    await read(box)
    refused = await box.call("MultiEdit", {"file_path": "a.txt", "edits": edits, "encoding": "cp1252"})
    assert refused.is_error and "cp1252, which has no such character" in refused.text
    done = await box.call("MultiEdit", {"file_path": "a.txt", "edits": edits, "encoding": "iso8859-2"})
    assert not done.is_error
    assert file.read_bytes() == "ś\ną\nschön\n".encode("iso8859-2")


async def test_a_guess_from_little_evidence_is_said_and_must_be_confirmed(file: Path, box: Toolbox) -> None:
    file.write_bytes(b"name = M\xfcller\ncity = Berlin\n")
    shown = await read(box)
    assert "Müller" in shown.text and "Encoding: cp1252 (a guess; read again with `encoding`" in shown.text
    refused = await edit(box, "Berlin", "Zürich, straße")
    assert refused.is_error and "its encoding is only a guess: cp1252" in refused.text and "'ß'" in refused.text
    assert "with `encoding`" in refused.text and file.read_bytes() == b"name = M\xfcller\ncity = Berlin\n"
    assert not (await edit(box, "Berlin", "Zürich, straße", encoding="latin-1")).is_error
    assert file.read_bytes() == b"name = M\xfcller\ncity = Z\xfcrich, stra\xdfe\n"
    assert not (await edit(box, "Zürich", "Köln")).is_error  # confirmed once, it stays
    assert file.read_bytes().decode("latin-1") == "name = Müller\ncity = Köln, straße\n"


async def test_ascii_and_characters_the_file_has_need_no_confirmation(file: Path, box: Toolbox) -> None:
    file.write_bytes(b"name = M\xfcller\ncity = Berlin\n")
    await read(box)
    assert not (await edit(box, "city = Berlin", "city = München")).is_error
    assert not (await edit(box, "name", "first")).is_error
    assert file.read_bytes() == b"first = M\xfcller\ncity = M\xfcnchen\n"


async def test_a_character_that_encodings_that_fit_write_differently_is_asked_about(file: Path, box: Toolbox) -> None:
    text = (
        "Die Größe der Tür wird überprüft, bevor das Öffnen möglich ist. Für ältere Geräte gilt die gleiche Prüfung.\n"
    )
    file.write_bytes(text.encode("latin-1"))
    assert "a guess" not in (await read(box)).text
    assert not (await edit(box, "Geräte", "Geräte à la carte")).is_error  # the same byte in all of them
    refused = await edit(box, "Prüfung", "Prüfung für 5 €")
    assert refused.is_error and "others that fit" in refused.text
    assert not (await edit(box, "Prüfung", "Prüfung für 5 €", encoding="iso8859-15")).is_error
    assert b"f\xfcr 5 \xa4" in file.read_bytes()


async def test_read_takes_an_encoding_and_shows_the_file_again(file: Path, box: Toolbox) -> None:
    file.write_bytes("żółć\n".encode("iso8859-2"))
    await read(box)
    shown = await read(box, encoding="ISO-8859-2")
    assert "żółć" in shown.text and "a guess" not in shown.text
    assert (await read(box)).data["type"] == "file_unchanged"


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("klingon", "'klingon' is no encoding"),
        ("rot13", "is no encoding"),
        ("utf-7", "is no encoding"),
        ("iso2022_jp", "is no encoding"),
        ("cp037", "is no encoding"),
        ("unicode_escape", "is no encoding"),
        ("utf-8", "The file is not in utf-8"),
    ],
)
async def test_an_encoding_that_cannot_be_right_is_refused(file: Path, box: Toolbox, name: str, words: str) -> None:
    file.write_bytes(b"caf\xe9\n")
    await read(box)
    for result in (await read(box, encoding=name), await edit(box, "caf", "Caf", encoding=name)):
        assert result.is_error and words in result.text
    assert file.read_bytes() == b"caf\xe9\n"


async def test_a_byte_order_mark_is_stronger_than_a_name(file: Path, box: Toolbox) -> None:
    file.write_bytes("\ufeffa é\n".encode("utf-16-le"))
    assert "byte order mark of utf-16-le, so it is not cp1252" in (await read(box, encoding="cp1252")).text
    assert "a é" in (await read(box, encoding="utf-16")).text
    assert not (await edit(box, "a é", "b ś", encoding="utf-16")).is_error
    assert file.read_bytes() == "\ufeffb ś\n".encode("utf-16-le")


async def test_write_converts_a_file_to_the_encoding_named(file: Path, box: Toolbox) -> None:
    text = "Die Größe der Tür wird überprüft, für ältere Geräte gilt das auch.\r\nÖl\r\n"
    file.write_bytes(text.encode("cp1252"))
    await read(box)
    result = await write(box, text.replace("Öl", "Öl – 5 €").replace("\r", ""), encoding="utf-8")
    assert not result.is_error and "-Öl" in result.text and "+Öl – 5 €" in result.text
    assert file.read_bytes() == text.replace("Öl", "Öl – 5 €").encode()
    assert not (await edit(box, "Öl", "漢字")).is_error


async def test_write_in_another_older_encoding_than_the_guess_needs_a_reading_in_it(file: Path, box: Toolbox) -> None:
    file.write_bytes("Müller æ\n".encode("cp1252"))
    await read(box)
    refused = await write(box, "Müller ć\n", encoding="iso8859-2")
    assert refused.is_error and 'Read it with encoding="iso8859-2" first' in refused.text
    assert file.read_bytes() == "Müller æ\n".encode("cp1252")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("latin-1", b"caf\xe9\n"),
        ("utf-16", b"\xff\xfec\0a\0f\0\xe9\0\n\0"),
        ("utf-8-sig", b"\xef\xbb\xbfcaf\xc3\xa9\n"),
        ("utf-16-be", b"\0c\0a\0f\0\xe9\0\n"),
    ],
)
async def test_a_new_file_is_written_in_the_encoding_named(file: Path, box: Toolbox, name: str, data: bytes) -> None:
    assert not (await write(box, "café\n", encoding=name)).is_error
    assert file.read_bytes() == data
    assert not (await edit(box, "café", "naïve")).is_error  # not a guess: we wrote it
    assert "naïve" in (await read(box)).text


async def test_a_change_by_others_keeps_the_encoding_where_it_fits(file: Path, box: Toolbox) -> None:
    file.write_bytes("one ż\ntwo\nthree\nfour\n".encode("iso8859-2"))
    await read(box, encoding="iso8859-2")
    file.write_bytes("one ż\ntwo\nthree\nfour ą\n".encode("iso8859-2"))
    merged = await edit(box, "one ż", "one ś")
    assert not merged.is_error
    assert file.read_bytes() == "one ś\ntwo\nthree\nfour ą\n".encode("iso8859-2")
    file.write_bytes("one ś\ntwo\nthree\nfour ąę\n".encode())
    refused = await edit(box, "two", "2")
    assert refused.is_error and "cannot be merged" in refused.text
    assert "four ąę" in (await read(box)).text


async def test_file_search_does_not_write_by_a_doubtful_guess(file: Path, box: Toolbox) -> None:
    file.write_bytes(b"name = M\xfcller\n")
    arguments = {"pattern": "name", "replace_with": "straße", "preview_only": False}
    refused = await box.call("FileSearch", arguments)
    assert refused.is_error and "only a guess: cp1252" in refused.text and "`exclude`" in refused.text
    await read(box, encoding="iso8859-2")
    await edit(box, "name", "NAME")
    assert file.read_bytes() == b"NAME = M\xfcller\n"
