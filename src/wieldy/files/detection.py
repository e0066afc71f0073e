"""Detect what bytes are: the encoding of text, and the kind of a file that is not text."""

from __future__ import annotations

import codecs
import os
from collections.abc import Sequence
from functools import cache
from unicodedata import category
from unicodedata import name as character_name

from msgspec import Struct

from wieldy.core.errors import ToolFailure

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

# The older encodings of a language, likelier than others where the locale names it.
BY_LANGUAGE: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("pl", "cs", "sk", "hu", "sl", "hr", "bs", "ro", "sq"), ("cp1250", "iso8859-2")),
    **dict.fromkeys(("ru", "uk", "be", "bg", "sr", "mk"), ("cp1251", "koi8-r")),
    "el": ("cp1253", "iso8859-7"),
    "tr": ("cp1254", "iso8859-9"),
    "he": ("cp1255",),
    "ar": ("cp1256",),
    **dict.fromkeys(("lt", "lv", "et"), ("cp1257",)),
    "vi": ("cp1258",),
    "th": ("cp874",),
    "ko": ("cp949",),
    "ja": ("cp932", "euc_jp"),
    "zh": ("gb18030", "big5"),
}
WESTERN = "cp1252"

SAMPLE = 32 * 1024
WIDE_SAMPLE = 4096
# Below the first confidence the ranking is chance. Below the second (lower where characters take several bytes, which
# words of other languages rarely fit) the likely encodings are preferred. With fewer characters beyond ASCII than
# MIN_EVIDENCE a guess is doubtful.
MIN_CONFIDENCE = 0.03
CLEAR_CONFIDENCE = 0.1
CLEAR_MULTIBYTE = 0.05
MIN_EVIDENCE = 8
# Encodings this close to the best are rivals.
RIVAL_SHARE = 0.7
# One character in so many may fail to decode in an encoding that a caller names.
STRAY_SHARE = 20


class Encoding(Struct, frozen=True):
    """A Python codec and the byte order mark. `doubtful`: guessed from thin evidence; `rivals` would read the text alike.
    Not `valid`: some bytes do not decode."""

    name: str
    bom: bytes = b""
    doubtful: bool = False
    valid: bool = True
    rivals: tuple[str, ...] = ()

    @property
    def unit(self) -> int:
        """How many bytes a line feed takes."""
        return 4 if self.name.startswith("utf-32") else 2 if self.name.startswith("utf-16") else 1

    @property
    def certain(self) -> bool:
        """Whether there is one way only to write any character in the file."""
        return not self.doubtful and not self.rivals

    @property
    def is_unicode(self) -> bool:
        return self.name.startswith("utf")


UTF8 = Encoding("utf-8")


def detect_encoding(data: bytes, *, whole: bool = True, likely: Sequence[str] | None = None) -> Encoding:
    """The encoding of `data`; with `whole=False` it is only the head of a text, and a character cut at its end is fine.

    The codec decodes the bytes after the mark strictly, except that a text with a BOM, or one that is mostly UTF-8, may
    hold some bytes that do not decode; then it is not `valid`. `latin-1`, the last resort, decodes anything. `likely`
    encodings, by default those of the locale's language, are preferred where the evidence is thin; after them Western ones.
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
        return Encoding("utf-8", valid=False)
    return _guess(data, whole, (*(_locale_encodings() if likely is None else likely), WESTERN))


def keep_encoding(data: bytes, known: Encoding | None, *, unchanged: bool, whole: bool = True) -> Encoding:
    """The encoding a file was read in before, if it still fits, else the one detected. A change by others may show that
    a doubtful guess was wrong."""
    if known is not None:
        if unchanged and (not known.valid or decodes(data[len(known.bom) :], known.name, whole=whole)):
            return known
        if not known.doubtful and fits(data, known, whole=whole):
            return known
    return detect_encoding(data, whole=whole)


def fits(data: bytes, encoding: Encoding, *, whole: bool = True) -> bool:
    """Whether `data` may be a later version of a file in this encoding."""
    if data.isascii() and b"\0" not in data:
        return encoding.unit == 1 and not encoding.bom
    detected = detect_encoding(data, whole=whole)
    if (detected.bom, detected.unit) != (encoding.bom, encoding.unit):
        return False
    if detected.is_unicode or encoding.is_unicode:
        return detected.name == encoding.name
    return decodes(data, encoding.name, whole=whole)


def named_encoding(name: str, data: bytes, *, whole: bool = True) -> Encoding:
    """The encoding that a caller names for the content of a file; refuses one that is no text's, or not that of this one."""
    codec = _find_text_codec(name)
    plain = codec.removesuffix("-sig")
    by_bom = _by_bom(data, whole)
    if by_bom is not None:
        if not by_bom.name.startswith(plain):
            raise ToolFailure(f"The file starts with the byte order mark of {by_bom.name}, so it is not {name}.")
        return by_bom
    if plain in ("utf-16", "utf-32"):
        plain += "-le"
    if decodes(data, plain, whole=whole):
        return Encoding(plain)
    text = data.decode(plain, "replace")
    if (plain == "utf-8" and not _mostly_utf8(data)) or text.count(_REPLACEMENT) * STRAY_SHARE > len(text):
        raise ToolFailure(
            f"The file is not in {name}: some of its bytes do not decode. Nothing was changed.",
            "Name another encoding; to convert a file, Write it with the new one.",
        )
    return Encoding(plain, valid=False)


def encoding_for_new(name: str) -> Encoding:
    """The encoding that a caller names for a content to be written; `utf-8-sig`, `utf-16` and `utf-32` get a mark."""
    codec = _find_text_codec(name)
    marked = {"utf-8-sig": 0, "utf-32": 1, "utf-16": 3}.get(codec)
    return Encoding(codec) if marked is None else Encoding(BOMS[marked][1], BOMS[marked][0])


def _find_text_codec(name: str) -> str:
    try:
        codec = codecs.lookup(name).name
        if codec.startswith(("utf-8", "utf-16", "utf-32")) or _keeps_ascii(codec):
            return codec
    except (LookupError, ValueError):
        pass
    raise ToolFailure(
        f"{name!r} is no encoding that text files can be edited in.",
        "Use a name such as utf-8, utf-16-le, cp1252, iso8859-2, koi8-r, gb18030, shift_jis, euc_jp, big5 or euc_kr.",
    )


@cache
def _keeps_ascii(codec: str) -> bool:
    """Whether ASCII bytes, and no others, stand for ASCII characters, wherever they are in a text."""
    if "escape" in codec:
        return False
    sample = bytes(range(128)) + b"~{VPND~} +AGE- \x1b$BAA\x1b(B"
    try:
        return sample.decode(codec) == sample.decode("ascii") and "\n\\".encode(codec) == b"\n\\"
    except (LookupError, ValueError):
        return False


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
        return Encoding(codec, bom, valid=False)
    return None


def _reads_as_text(text: str) -> bool:
    """Whether the text has some ASCII, one other script at most, and no characters that texts never have."""
    others = [char for char in text if not char.isascii()]
    if len(others) == len(text) or any(
        char not in "\t\n\r\f\x1b" and category(char) in {"Cc", "Cn", "Co", "Cs"} for char in text
    ):
        return False
    # Two ASCII letters taken for one wide character look Chinese. Real Chinese is not mostly of that kind.
    paired = sum(0x20 <= ord(char) >> 8 <= 0x7E and 0x20 <= ord(char) & 0xFF <= 0x7E for char in others)
    letters = [_script(char) for char in others if char.isalpha()]
    main = max(map(letters.count, set(letters)), default=0)
    few_paired = paired * 2 <= len(others) or paired * 4 <= len(text) - len(others)
    return few_paired and main * 10 >= len(letters) * 9


def _script(char: str) -> str:
    script = character_name(char, "").partition(" ")[0]
    return (
        "CJK" if script in {"HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA", "HANGUL", "BOPOMOFO", "FULLWIDTH"} else script
    )


def _mostly_utf8(data: bytes) -> bool:
    """Whether valid characters beyond ASCII outweigh what does not decode; a long valid sequence is rarely chance."""
    good = data.decode("utf-8", "ignore")
    continued = len(good.encode()) - len(good)
    bad = data.decode("utf-8", "replace").count(_REPLACEMENT) - data.count(_REPLACEMENT.encode())
    return continued >= 2 * bad


class _Candidate(Struct, frozen=True):
    """An encoding that fits, how the text reads in it, and how many characters are at odd places then."""

    name: str
    confidence: float
    text: str
    odd: int

    @property
    def clear(self) -> bool:
        return self.confidence >= (CLEAR_CONFIDENCE if self.name in SINGLE_BYTE else CLEAR_MULTIBYTE)


def _guess(data: bytes, whole: bool, likely: Sequence[str]) -> Encoding:
    """The best plausible guess by statistics; where that is weak, the first of the `likely` encodings that is plausible and,
    if there is more than a word or two, not much worse."""
    sample = _sample(data)
    candidates = _candidates(data, sample, whole)
    near = [one for one in candidates if one.confidence >= candidates[0].confidence * RIVAL_SHARE]
    if not near or not near[0].clear:
        little = sum(byte > 0x7F for byte in sample) < MIN_EVIDENCE
        supported = {WESTERN, *(one.name for one in near)}
        for name in likely:
            if (
                (little or name in supported)
                and decodes(data, name, whole=whole)
                and _is_plausible(sample.decode(name, "ignore"))
            ):
                return Encoding(name, doubtful=True)
    if not near:
        return Encoding(WESTERN if decodes(data, WESTERN, whole=whole) else "latin-1", doubtful=True)
    least = min(one.odd for one in near)
    best, *others = (one for one in near if one.odd == least)
    evidence = sum(not char.isascii() for char in best.text)
    doubtful = not best.clear or evidence < MIN_EVIDENCE or any(one.text != best.text for one in others)
    return Encoding(best.name, doubtful=doubtful, rivals=tuple(one.name for one in others if one.name != best.name))


def _candidates(data: bytes, sample: bytes, whole: bool) -> list[_Candidate]:
    import chardet

    guesses = chardet.detect_all(
        sample,
        ignore_threshold=True,
        compat_names=False,
        include_encodings=(*MULTIBYTE, *SINGLE_BYTE),
    )
    candidates = []
    for rank, guess in enumerate(guesses):
        codec, confidence = guess["encoding"] or "", guess["confidence"]
        if codec not in MULTIBYTE + SINGLE_BYTE or (confidence < MIN_CONFIDENCE and (rank > 0 or codec in SINGLE_BYTE)):
            continue
        for name in (PREFERRED.get(codec, codec), codec):
            if decodes(data, name, whole=whole) and _is_plausible(text := sample.decode(name, "ignore")):
                candidates.append(_Candidate(name, confidence, text, _count_odd(text)[0]))
                break
    return candidates


def _is_plausible(text: str) -> bool:
    odd, others = _count_odd(text)
    return odd == 0 or odd * 4 < others


def _count_odd(text: str) -> tuple[int, int]:
    """How many characters beyond ASCII stand where no language has them, and how many there are: letters of another script
    inside a word ("Cafй"), symbols inside or right before one ("B³±d"), capitals behind small letters ("дцьЯ")."""
    odd = others = 0
    for before, char, after in zip(" " + text, text, text[1:] + " ", strict=False):
        if char.isascii():
            continue
        others += 1
        if "\u0370" <= char < "\u1e00" and before.isascii() and before.isalpha():
            odd += 1
        elif char.isalpha() and char not in "ªº":
            odd += before.islower() and char.isupper()
        elif after.isalpha() and category(char) not in _WORD_STARTS and char not in _IN_WORDS:
            odd += not before.isdecimal()
    return odd, others


@cache
def _locale_encodings() -> tuple[str, ...]:
    # LC_CTYPE may be C.UTF-8 by Python's own doing, which names no language.
    names = [os.environ.get(variable, "") for variable in ("LC_ALL", "LC_CTYPE", "LANG")]
    return next(filter(None, map(encodings_of_locale, names)), ())


def encodings_of_locale(name: str) -> tuple[str, ...]:
    """The older encodings of a locale's language, whatever encoding the locale itself has: `pl_PL.UTF-8` → cp1250, iso8859-2."""
    codecs_of_language = BY_LANGUAGE.get(name[:2], ()) if name[2:3] in ("", "_", ".", "@") else ()
    return codecs_of_language[::-1] if name.startswith(("zh_TW", "zh_HK")) else codecs_of_language


def _sample(data: bytes) -> bytes:
    """Some whole lines from the first byte beyond ASCII on: a long English preface tells nothing."""
    rest = data.lstrip(_ASCII)
    start = data.rfind(b"\n", 0, len(data) - len(rest)) + 1
    part = data[start : start + SAMPLE]
    last_line = part.rfind(b"\n") + 1
    return part[:last_line] if last_line and len(part) == SAMPLE else part


_ASCII = bytes(range(128))
# Quotes and brackets, dashes, marks that combine with the letter before them.
_WORD_STARTS = frozenset({"Pi", "Pf", "Ps", "Pd", "Mn", "Zs", "Cf"})
_IN_WORDS = "¿¡´·…‚„†‡§"
_REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


HEAD = 8192

# Offset and bytes that no text file has.
MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\x7fELF", "ELF executable"),
    (0, b"\xfe\xed\xfa\xce", "Mach-O executable"),
    (0, b"\xfe\xed\xfa\xcf", "Mach-O executable"),
    (0, b"\xce\xfa\xed\xfe", "Mach-O executable"),
    (0, b"\xcf\xfa\xed\xfe", "Mach-O executable"),
    (0, b"\0asm", "WebAssembly module"),
    (0, b"dex\n0", "Android bytecode"),
    (0, b"BC\xc0\xde", "LLVM bitcode"),
    (0, b"!<arch>\n", "ar archive"),
    (0, b"PK\x03\x04", "ZIP archive"),
    (0, b"PK\x05\x06", "ZIP archive"),
    (0, b"PK\x07\x08", "ZIP archive"),
    (0, b"\x1f\x8b", "gzip data"),
    (0, b"\xfd7zXZ\0", "XZ data"),
    (0, b"\x28\xb5\x2f\xfd", "Zstandard data"),
    (0, b"\x04\x22\x4d\x18", "LZ4 data"),
    (0, b"7z\xbc\xaf\x27\x1c", "7-Zip archive"),
    (0, b"Rar!\x1a\x07", "RAR archive"),
    (0, b"SQLite format 3\0", "SQLite database"),
    (0, b"\x89PNG\r\n\x1a\n", "PNG image"),
    (0, b"\xff\xd8\xff", "JPEG image"),
    (0, b"GIF87a", "GIF image"),
    (0, b"GIF89a", "GIF image"),
    (0, b"II*\0", "TIFF image"),
    (0, b"MM\0*", "TIFF image"),
    (0, b"8BPS\0\x01", "Photoshop image"),
    (0, b"%PDF-", "PDF document"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "Microsoft Office document"),
    (0, b"OggS\0", "Ogg media"),
    (0, b"fLaC\0", "FLAC audio"),
    (0, b"\x1aE\xdf\xa3", "Matroska video"),
    (0, b"wOFF\0", "web font"),
    (0, b"wOF2\0", "web font"),
    (0, b"OTTO\0", "OpenType font"),
    (0, b"\0\x01\0\0\0", "TrueType font"),
    (0, b"\x89HDF\r\n\x1a\n", "HDF5 data"),
    (0, b"\x93NUMPY", "NumPy array"),
    (257, b"ustar", "tar archive"),
)

# A text may start with these letters: they count only where a NUL byte shows that it is none.
MAGIC_WITH_NUL: tuple[tuple[int, bytes, str], ...] = (
    (0, b"MZ", "Windows executable"),
    (0, b"BM", "BMP image"),
    (0, b"BZh", "bzip2 data"),
    (0, b"ID3", "MP3 audio"),
    (0, b"PAR1", "Parquet data"),
    (0, b"PACK", "Git pack"),
    (0, b"\xca\xfe\xba\xbe", "Java class"),
    (4, b"ftyp", "MP4 media"),
    (2, b"\r\n", "Python bytecode"),
)

RIFF = {b"WEBP": "WebP image", b"WAVE": "WAV audio", b"AVI ": "AVI video"}

OFFICE = ((b"word/", "Word document"), (b"xl/", "Excel workbook"), (b"ppt/", "PowerPoint presentation"))


def binary_kind(head: bytes) -> str | None:
    """The name of the type when a file that begins with `head` is no text ("ZIP archive", "binary data"), else None."""
    head = head[:HEAD]
    kind = _match_magic(head, MAGIC)
    if kind is not None:
        return _zip_kind(head) if kind == "ZIP archive" else kind
    if head.startswith(b"RIFF") and head[8:12] in RIFF:
        return RIFF[head[8:12]]
    if b"\0" not in head or _is_wide_text(head):
        return None
    return _match_magic(head, MAGIC_WITH_NUL) or "binary data"


def _match_magic(head: bytes, table: tuple[tuple[int, bytes, str], ...]) -> str | None:
    return next((name for offset, magic, name in table if head.startswith(magic, offset)), None)


def _zip_kind(head: bytes) -> str:
    if b"[Content_Types].xml" in head:
        return next((name for folder, name in OFFICE if folder in head), "Office document")
    if b"META-INF/" in head[:512]:
        return "Java archive"
    if b"mimetypeapplication/epub" in head[:128]:
        return "EPUB book"
    if b"mimetypeapplication/vnd.oasis.opendocument" in head[:128]:
        return "OpenDocument file"
    return "ZIP archive"


def _is_wide_text(head: bytes) -> bool:
    has_bom = any(head.startswith(bom) for bom, codec in BOMS if codec != "utf-8")
    return has_bom or detect_wide_codec(head) is not None


def media_type_of(head: bytes) -> str | None:
    """The media type of an image that models can see, by its signature."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None
