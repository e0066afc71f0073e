"""Which encoding bytes are in: byte order mark, strict UTF-8, the NUL pattern of UTF-16 and 32, then statistics."""

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

# What text files are really kept in. Encodings that switch state (ISO-2022, HZ, UTF-7) are left out: their bytes are
# plain ASCII, and cutting such a text anywhere but at its start changes its meaning.
MULTIBYTE = ("gb18030", "cp932", "euc_jis_2004", "big5hkscs", "cp949")
SINGLE_BYTE = (
    *("cp1250", "cp1251", "cp1252", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "cp1258", "cp874"),
    *("iso8859-1", "iso8859-2", "iso8859-5", "iso8859-7", "iso8859-9", "iso8859-15"),
    *("koi8-r", "koi8-u", "cp866", "cp437", "cp850"),
)
# Named as the older, smaller codec where it fits, so that an edit cannot bring in characters its programs do not know;
# Latin-1 as Windows has it, which differs only in holding quotes and dashes where Latin-1 has control characters.
NAMED = {"euc_jis_2004": "euc_jp", "big5hkscs": "big5", "iso8859-1": "cp1252"}

SAMPLE = 32 * 1024
WIDE_SAMPLE = 4096
# Below the first the statistics rank languages by chance; from the second on a guess is called sure.
WEAK = 0.03
SURE = 0.3


class Encoding(Struct, frozen=True):
    """A Python codec and the mark before the text; not `sure` where it is a guess or some bytes do not decode."""

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

    The codec decodes the bytes after the mark strictly, with two exceptions, both with `sure=False`: a text marked by
    its BOM, or mostly UTF-8, that holds some bytes which do not decode. `latin-1`, the last resort, decodes anything.
    """
    told = detect_certain(data, whole=whole)
    if told is not None:
        return told
    if _mostly_utf8(data):
        return Encoding("utf-8", sure=False)
    return _by_statistics(data, whole)


def detect_certain(data: bytes, *, whole: bool = True) -> Encoding | None:
    """The encoding of `data` where nothing has to be guessed, which takes long."""
    if data.isascii() and b"\0" not in data:
        return UTF8
    marked = _by_bom(data, whole)
    if marked is not None:
        return marked
    if b"\0" in data and (wide := wide_codec(data, whole=whole)):
        return Encoding(wide)
    return UTF8 if decodes(data, "utf-8", whole=whole) else None


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
    """Whether there is something of ASCII in the text, and nothing that no text holds."""
    plain = sum(map(str.isascii, text))
    if not plain or any(char not in "\t\n\r\f\x1b" and category(char) in {"Cc", "Cn", "Co", "Cs"} for char in text):
        return False
    # Two letters of a narrow text, taken for one wide character, look Chinese. Real Chinese is not all of that kind.
    paired = sum(0x20 <= ord(char) >> 8 <= 0x7E and 0x20 <= ord(char) & 0xFF <= 0x7E for char in text)
    return paired <= plain or paired * 5 <= (len(text) - plain) * 4


def _mostly_utf8(data: bytes) -> bool:
    """Whether good characters beyond ASCII outweigh what does not decode; the longer a good one, the less by chance."""
    good = data.decode("utf-8", "ignore")
    continued = len(good.encode()) - len(good)
    bad = data.decode("utf-8", "replace").count(_MARK) - data.count(_MARK.encode())
    return continued >= 2 * bad


def _by_statistics(data: bytes, whole: bool) -> Encoding:
    import chardet

    part = _telling_part(data)
    guesses = chardet.detect_all(
        part,
        ignore_threshold=True,
        compat_names=False,
        include_encodings=(*MULTIBYTE, *SINGLE_BYTE),
    )
    for rank, guess in enumerate(guesses):
        codec, confidence = guess["encoding"] or "", guess["confidence"]
        if codec not in MULTIBYTE + SINGLE_BYTE or (confidence < WEAK and (rank > 0 or codec in SINGLE_BYTE)):
            continue
        for name in (NAMED.get(codec, codec), codec):
            if decodes(data, name, whole=whole) and not _mixes_scripts(part.decode(name, "ignore")):
                return Encoding(name, sure=confidence >= SURE)
    return Encoding("cp1252" if decodes(data, "cp1252") else "latin-1", sure=False)


def _mixes_scripts(text: str) -> bool:
    """Whether Greek, Cyrillic, Hebrew, Arabic or Thai letters stand inside English words, as in "Cafй"."""
    foreign = sum("\u0370" <= char < "\u1e00" for char in text)
    inside = sum((a.isascii() and a.isalpha() and "\u0370" <= b < "\u1e00") for a, b in pairwise(text))
    return inside * 4 > foreign


def _telling_part(data: bytes) -> bytes:
    """Some whole lines from the first byte beyond ASCII on: a long English preface says nothing."""
    rest = data.lstrip(_ASCII)
    start = data.rfind(b"\n", 0, len(data) - len(rest)) + 1
    part = data[start : start + SAMPLE]
    last_line = part.rfind(b"\n") + 1
    return part[:last_line] if last_line and len(part) == SAMPLE else part


_ASCII = bytes(range(128))
_MARK = "\N{REPLACEMENT CHARACTER}"
