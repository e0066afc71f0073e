"""Detect the encoding of bytes: byte order mark, strict UTF-8, the NUL pattern of UTF-16 and UTF-32, then statistics."""

from __future__ import annotations

import codecs
from itertools import pairwise
from unicodedata import category

from msgspec import Struct

BOMS: tuple[tuple[bytes, str], ...] = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)

WIDE = ("utf-32-le", "utf-32-be", "utf-16-le", "utf-16-be")

# Encodings of real text files. Those that switch state (ISO-2022, HZ, UTF-7) are left out: their bytes are plain ASCII,
# and cutting such a text anywhere but at its start changes its meaning.
MULTIBYTE = ("gb18030", "cp932", "euc_jis_2004", "big5hkscs", "cp949")
SINGLE_BYTE = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("iso8859-1", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9", "iso8859-15"),
    *("koi8-r", "koi8-u", "cp866", "cp437", "cp850"),
)
# The older, smaller codec is preferred where it fits, so that an edit cannot add characters that other programs do not know;
# and cp1252 to Latin-1, from which it differs only in having quotes and dashes instead of control characters.
PREFERRED = {"euc_jis_2004": "euc_jp", "big5hkscs": "big5", "iso8859-1": "cp1252"}

SAMPLE = 32 * 1024
WIDE_SAMPLE = 4096
# Below the first confidence the ranking is chance; from the second on a guess is called sure.
MIN_CONFIDENCE = 0.03
SURE_CONFIDENCE = 0.3


class Encoding(Struct, frozen=True):
    """A Python codec and the byte order mark; not `sure` where it is a guess or some bytes do not decode."""

    name: str
    bom: bytes = b""
    sure: bool = True

    @property
    def unit(self) -> int:
        """How many bytes a line feed takes."""
        return 4 if self.name.startswith("utf-32") else 2 if self.name.startswith("utf-16") else 1


UTF8 = Encoding("utf-8")


def detect_encoding(data: bytes, *, whole: bool = True) -> Encoding:
    """The encoding of `data`; with `whole=False` it is only the head of a text, and a character cut at its end is fine.

    The codec decodes the bytes after the mark strictly, except that a text with a BOM, or one that is mostly UTF-8, may
    hold some bytes that do not decode; then it is not `sure`. `latin-1`, the last resort, decodes anything.
    """
    if data.isascii() and b"\0" not in data:
        return UTF8
    by_bom = _by_bom(data, whole)
    if by_bom is not None:
        return by_bom
    if b"\0" in data and (wide := detect_wide_codec(data, whole=whole)):
        return Encoding(wide)
    if decodes(data, "utf-8", whole=whole):
        return UTF8
    if _mostly_utf8(data):
        return Encoding("utf-8", sure=False)
    return _guess(data, whole)


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


def detect_wide_codec(data: bytes, *, whole: bool = False) -> str | None:
    """The UTF-16 or UTF-32 codec of a text without byte order mark, by the positions of its NUL bytes."""
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
    candidates = [(bom, codec) for bom, codec in BOMS if data.startswith(bom)]
    for bom, codec in candidates:
        if decodes(data[len(bom) :], codec, whole=whole):
            return Encoding(codec, bom)
    if candidates:
        bom, codec = candidates[-1]
        return Encoding(codec, bom, sure=False)
    return None


def _reads_as_text(text: str) -> bool:
    """Whether the text has some ASCII, and no characters that texts never have."""
    ascii_count = sum(map(str.isascii, text))
    if not ascii_count or any(
        char not in "\t\n\r\f\x1b" and category(char) in {"Cc", "Cn", "Co", "Cs"} for char in text
    ):
        return False
    # Two ASCII letters taken for one wide character look Chinese. Real Chinese is not all of that kind.
    paired = sum(0x20 <= ord(char) >> 8 <= 0x7E and 0x20 <= ord(char) & 0xFF <= 0x7E for char in text)
    return paired <= ascii_count or paired * 5 <= (len(text) - ascii_count) * 4


def _mostly_utf8(data: bytes) -> bool:
    """Whether valid characters beyond ASCII outweigh what does not decode; a long valid sequence is rarely chance."""
    good = data.decode("utf-8", "ignore")
    continued = len(good.encode()) - len(good)
    bad = data.decode("utf-8", "replace").count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())
    return continued >= 2 * bad


def _guess(data: bytes, whole: bool) -> Encoding:
    import chardet

    sample = _sample(data)
    guesses = chardet.detect_all(
        sample,
        ignore_threshold=True,
        compat_names=False,
        include_encodings=(*MULTIBYTE, *SINGLE_BYTE),
    )
    for rank, guess in enumerate(guesses):
        codec, confidence = guess["encoding"] or "", guess["confidence"]
        if codec not in MULTIBYTE + SINGLE_BYTE or (confidence < MIN_CONFIDENCE and (rank > 0 or codec in SINGLE_BYTE)):
            continue
        for name in (PREFERRED.get(codec, codec), codec):
            if decodes(data, name, whole=whole) and not _mixes_scripts(sample.decode(name, "ignore")):
                return Encoding(name, sure=confidence >= SURE_CONFIDENCE)
    return Encoding("cp1252" if decodes(data, "cp1252") else "latin-1", sure=False)


def _mixes_scripts(text: str) -> bool:
    """Whether Greek, Cyrillic, Hebrew, Arabic or Thai letters stand inside English words, as in "Cafй"."""
    foreign = sum("\u0370" <= char < "\u1e00" for char in text)
    inside = sum((a.isascii() and a.isalpha() and "\u0370" <= b < "\u1e00") for a, b in pairwise(text))
    return inside * 4 > foreign


def _sample(data: bytes) -> bytes:
    """Some whole lines from the first byte beyond ASCII on: a long English preface tells nothing."""
    rest = data.lstrip(_ASCII)
    start = data.rfind(b"\n", 0, len(data) - len(rest)) + 1
    part = data[start : start + SAMPLE]
    last_line = part.rfind(b"\n") + 1
    return part[:last_line] if last_line and len(part) == SAMPLE else part


_ASCII = bytes(range(128))
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"
