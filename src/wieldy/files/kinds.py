"""Name the type of a binary file by its first bytes."""

from __future__ import annotations

from wieldy.files.encodings import BOMS, detect_wide_codec

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
