"""Which encoding bytes are in: byte order mark, strict UTF-8, the NUL pattern of UTF-16 and 32, then statistics."""

from __future__ import annotations

import codecs
import unicodedata
from dataclasses import dataclass

BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")

# What text files are really kept in. Encodings that switch state (ISO-2022, HZ, UTF-7) are left out: their bytes are
# plain ASCII, and cutting such a text anywhere but at its start changes its meaning.
MULTIBYTE = ("gb18030", "cp932", "euc_jis_2004", "big5hkscs", "cp949")
SINGLE_BYTE = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("iso8859-1", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9", "iso8859-15"),
    *("koi8-r", "koi8-u", "cp866", "cp437", "cp850", "mac-roman"),
)
# The plain codec is preferred where it fits, so that an edit cannot bring in characters older programs do not know.
PLAIN = {"euc_jis_2004": "euc_jp", "big5hkscs": "big5"}

SAMPLE = 32 * 1024
WIDE_SAMPLE = 4096
# Below this the statistics rank languages by chance; a Western European guess is then right most often.
TRUSTED_SINGLE_BYTE = 0.2
SURE = 0.3


@dataclass(frozen=True, slots=True)
class Encoding:
    """A Python codec and the mark before the text; not `sure` where it is a guess or some bytes do not decode."""

    name: str
    bom: bytes = b""
    sure: bool = True

    @property
    def unit(self) -> int:
        """How many bytes a line feed takes."""
        return 4 if self.name.startswith("utf-32") else 2 if self.name.startswith("utf-16") else 1


UTF8 = Encoding("utf-8")


def detect(data: bytes, *, whole: bool = True) -> Encoding:
    """The encoding of `data`; with `whole=False` it is only the head of a text, and a character cut at its end is fine.

    The codec decodes the bytes after the mark strictly, with two exceptions, both with `sure=False`: a text marked by
    its BOM, or mostly UTF-8, that holds some bytes which do not decode. `latin-1`, the last resort, decodes anything.
    """
    marked = _by_bom(data, whole)
    if marked is not None:
        return marked
    if b"\0" in data and (wide := wide_codec(data, whole=whole)):
        return Encoding(wide)
    if decodes(data, "utf-8", whole=whole):
        return UTF8
    if _mostly_utf8(data):
        return Encoding("utf-8", sure=False)
    return _by_statistics(data, whole)


def decodes(data: bytes, codec: str, *, whole: bool = True) -> bool:
    """Whether `data` is valid in `codec`; with `whole=False` a character cut at the end is fine."""
    try:
        if whole:
            data.decode(codec)
        else:
            codecs.getincrementaldecoder(codec)().decode(data)
    except UnicodeDecodeError:
        return False
    return True


def wide_codec(data: bytes, *, whole: bool = False) -> str | None:
    """The UTF-16 or UTF-32 codec of a text without byte order mark, told by where its NUL bytes stand."""
    head = data[:WIDE_SAMPLE]
    for codec in WIDE:
        width = 4 if codec.startswith("utf-32") else 2
        if whole and len(data) % width:
            continue
        try:
            text = codecs.getincrementaldecoder(codec)().decode(head)
        except UnicodeDecodeError:
            continue
        if text and _reads_as_text(text) and decodes(data, codec, whole=whole):
            return codec
    return None


def _by_bom(data: bytes, whole: bool) -> Encoding | None:
    marked = [(bom, codec) for bom, codec in BOMS if data.startswith(bom)]
    for bom, codec in marked:
        if decodes(data[len(bom) :], codec, whole=whole):
            return Encoding(codec, bom)
    if marked:
        bom, codec = marked[-1]
        return Encoding(codec, bom, sure=False)
    return None


def _reads_as_text(text: str) -> bool:
    """Whether there is Latin punctuation or white space among the letters, and nothing that no text holds."""
    if not any(char.isascii() for char in text):
        return False
    return all(char in "\t\n\r\f\x1b" or unicodedata.category(char) not in {"Cc", "Cn", "Co", "Cs"} for char in text)


def _mostly_utf8(data: bytes) -> bool:
    # One character an undecodable byte, so what the text is shorter by are the continuation bytes of good characters.
    text = data.decode("utf-8", "surrogateescape")
    good = len(data) - len(text)
    bad = len(data) - len(text.encode("utf-8", "ignore"))
    return good >= 2 * bad


def _by_statistics(data: bytes, whole: bool) -> Encoding:
    import chardet

    guesses = chardet.detect_all(
        _telling_part(data),
        ignore_threshold=True,
        compat_names=False,
        include_encodings=(*MULTIBYTE, *SINGLE_BYTE),
    )
    ranked = [(guess["encoding"], guess["confidence"]) for guess in guesses]
    trusted = [(codec, c) for codec, c in ranked if codec and (codec in MULTIBYTE or c >= TRUSTED_SINGLE_BYTE)]
    doubtful = [(codec, 0.0) for codec in ("cp1252", *(codec for codec, _ in ranked if codec))]
    for codec, confidence in (*trusted, *doubtful):
        for name in (PLAIN.get(codec, codec), codec):
            if decodes(data, name, whole=whole):
                return Encoding(name, sure=confidence >= SURE)
    return Encoding("latin-1", sure=False)


def _telling_part(data: bytes) -> bytes:
    """Some whole lines from the first byte beyond ASCII on: a long English preface says nothing."""
    rest = data.lstrip(_ASCII)
    start = data.rfind(b"\n", 0, len(data) - len(rest)) + 1
    part = data[start : start + SAMPLE]
    last_line = part.rfind(b"\n") + 1
    return part[:last_line] if last_line and len(part) == SAMPLE else part


_ASCII = bytes(range(128))
