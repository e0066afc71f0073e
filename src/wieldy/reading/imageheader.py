"""Type and size of a PNG, JPEG, GIF or WebP image, read from its first bytes without decoding it."""

from __future__ import annotations

from wieldy.core.record import record

# JPEG markers that start a frame and carry its size; C4, C8 and CC in that range mean other things.
_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


@record
class ImageHeader:
    """What an image says of itself."""

    media_type: str
    width: int
    height: int

    @property
    def pixels(self) -> int:
        """How many pixels decoding it would take."""
        return self.width * self.height

    @property
    def long_side(self) -> int:
        """The larger of width and height."""
        return max(self.width, self.height)


def media_type_of(head: bytes) -> str | None:
    """The media type of an image that models can look at, by its signature."""
    if head.startswith(b"\x89PNG\r\n\x1a\n"):
        return "image/png"
    if head.startswith(b"\xff\xd8\xff"):
        return "image/jpeg"
    if head.startswith((b"GIF87a", b"GIF89a")):
        return "image/gif"
    if head.startswith(b"RIFF") and head[8:12] == b"WEBP":
        return "image/webp"
    return None


def read_header(data: bytes) -> ImageHeader | None:
    """The header of an image, or None where it is damaged or of another type."""
    media_type = media_type_of(data)
    if media_type is None:
        return None
    size = _SIZES[media_type](data)
    return ImageHeader(media_type, *size) if size and min(size) > 0 else None


def ends_properly(data: bytes, media_type: str) -> bool:
    """Whether the end of the image is there: a cheap sign that it was not cut off."""
    if media_type == "image/png":
        return b"IEND" in data[-32:]
    if media_type == "image/jpeg":
        return b"\xff\xd9" in data[-64:]
    if media_type == "image/gif":
        return data.rstrip(b"\0").endswith(b";")
    return len(data) >= int.from_bytes(data[4:8], "little") + 8


def _png(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif(data: bytes) -> tuple[int, int] | None:
    if len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        elif marker in _WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + max(int.from_bytes(data[at + 2 : at + 4]), 2)
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    if len(data) < 30:
        return None
    kind = data[12:16]
    if kind == b"VP8X":
        return 1 + int.from_bytes(data[24:27], "little"), 1 + int.from_bytes(data[27:30], "little")
    if kind == b"VP8 ":
        return int.from_bytes(data[26:28], "little") & 0x3FFF, int.from_bytes(data[28:30], "little") & 0x3FFF
    if kind == b"VP8L":
        bits = int.from_bytes(data[21:25], "little")
        return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
    return None


_SIZES = {"image/png": _png, "image/jpeg": _jpeg, "image/gif": _gif, "image/webp": _webp}
