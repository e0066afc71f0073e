"""Prepare images for a model: whole, upright, not animated, and within size limits. Wraps Pillow."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from msgspec import Struct

from wieldy.core.errors import ToolFailure
from wieldy.core.outcome import Image
from wieldy.files.detection import media_type_of

if TYPE_CHECKING:
    from PIL.Image import Image as Raster


LARGEST_FILE = 64 << 20
LARGEST_SENT = 3_750_000  # 5 MB once in base64
LONGEST_SENT = 2000
LONGEST_SHRUNK = 1568
MAX_PIXELS = 80_000_000
JPEG_QUALITIES = (85, 70, 50)
EXIF_ORIENTATION = 0x0112
# JPEG markers that start a frame and carry its size; C4, C8 and CC in that range mean other things.
_JPEG_FRAMES = frozenset(range(0xC0, 0xD0)) - {0xC4, 0xC8, 0xCC}
_JPEG_WITHOUT_LENGTH = frozenset({0x01, *range(0xD0, 0xD9)})


class ImageHeader(Struct, frozen=True):
    """The type and size in pixels that an image's header states."""

    media_type: str
    width: int
    height: int

    @property
    def pixels(self) -> int:
        return self.width * self.height

    @property
    def long_side(self) -> int:
        return max(self.width, self.height)


class PreparedImage(Struct, frozen=True):
    """An image ready to be sent, and the header of the original."""

    media_type: str
    data: bytes
    width: int
    height: int
    original: ImageHeader

    @property
    def block(self) -> Image:
        return Image(self.media_type, base64.b64encode(self.data).decode("ascii"))

    @property
    def shrunk(self) -> bool:
        return self.width * self.height < self.original.pixels


def prepare_image(data: bytes, name: str) -> PreparedImage:
    """The image in `data`, changed only as far as needed; `name` is for error messages."""
    header = read_header(data)
    if header is None:
        raise ToolFailure(f"{name} is damaged: it starts like an image but its header cannot be read.")
    if header.pixels > MAX_PIXELS:
        raise ToolFailure(
            f"{name} is {header.width}×{header.height} pixels, too large to decode.",
            "Shrink or crop it first, with Bash.",
        )
    try:
        from PIL import Image as pillow
    except ImportError:
        return _send_unchanged(data, header, name)
    try:
        with pillow.open(io.BytesIO(data)) as raster:
            return _fit(raster, data, header)
    except Exception as error:  # a decoder that is given damaged bytes may raise anything
        raise ToolFailure(f"{name} is damaged and cannot be shown: {error}.") from None


def _send_unchanged(data: bytes, header: ImageHeader, name: str) -> PreparedImage:
    if not has_end(data, header.media_type):
        raise ToolFailure(f"{name} is damaged: its end is missing.")
    if not _within_limits(data, header):
        raise ToolFailure(
            f"{name} is {header.width}×{header.height} pixels and {len(data)} bytes, too large to be sent, and "
            "shrinking needs Pillow: pip install 'wieldy[docs]'."
        )
    return PreparedImage(header.media_type, data, header.width, header.height, header)


def _within_limits(data: bytes, header: ImageHeader) -> bool:
    return len(data) <= LARGEST_SENT and header.long_side <= LONGEST_SENT


def _fit(raster: Raster, data: bytes, header: ImageHeader) -> PreparedImage:
    rotated = raster.getexif().get(EXIF_ORIENTATION, 1) != 1
    animated = getattr(raster, "is_animated", False)
    if _within_limits(data, header) and not rotated and not animated:
        raster.load()
        return PreparedImage(header.media_type, data, header.width, header.height, header)
    raster.draft("RGB", (LONGEST_SHRUNK, LONGEST_SHRUNK))
    raster = _rotate_upright(raster)
    if not _within_limits(data, header):
        raster.thumbnail((LONGEST_SHRUNK, LONGEST_SHRUNK))
    media_type, encoded = _encode(raster, header.media_type)
    return PreparedImage(media_type, encoded, raster.width, raster.height, header)


def _rotate_upright(raster: Raster) -> Raster:
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(raster)
    if upright.mode in {"RGB", "RGBA", "L"}:
        return upright
    if upright.mode.startswith("I"):
        return upright.point(lambda level: level / 256).convert("L")
    return upright.convert("RGBA" if upright.has_transparency_data else "RGB")


def _encode(raster: Raster, media_type: str) -> tuple[str, bytes]:
    if media_type != "image/jpeg":
        lossless = io.BytesIO()
        raster.save(lossless, "PNG")
        if lossless.tell() <= LARGEST_SENT:
            return "image/png", lossless.getvalue()
    plain = raster.convert("RGB")
    for quality in JPEG_QUALITIES:
        lossy = io.BytesIO()
        plain.save(lossy, "JPEG", quality=quality)
        if lossy.tell() <= LARGEST_SENT:
            break
    return "image/jpeg", lossy.getvalue()


def read_header(data: bytes) -> ImageHeader | None:
    """The header of an image, or None where it is damaged or of another type."""
    media_type = media_type_of(data)
    if media_type is None:
        return None
    size = _SIZES[media_type](data)
    return ImageHeader(media_type, *size) if size and min(size) > 0 else None


def has_end(data: bytes, media_type: str) -> bool:
    """Whether the image has its end: a cheap sign that it was not cut off."""
    if media_type == "image/png":
        return b"IEND" in data[-32:]
    if media_type == "image/jpeg":
        return b"\xff\xd9" in data[-64:]
    if media_type == "image/gif":
        return data.rstrip(b"\0").endswith(b";")
    return len(data) >= int.from_bytes(data[4:8], "little") + 8


def _png_size(data: bytes) -> tuple[int, int] | None:
    if data[12:16] != b"IHDR" or len(data) < 24:
        return None
    return int.from_bytes(data[16:20]), int.from_bytes(data[20:24])


def _gif_size(data: bytes) -> tuple[int, int] | None:
    if len(data) < 10:
        return None
    return int.from_bytes(data[6:8], "little"), int.from_bytes(data[8:10], "little")


def _jpeg_size(data: bytes) -> tuple[int, int] | None:
    at = 2
    while at + 9 <= len(data) and data[at] == 0xFF:
        marker = data[at + 1]
        if marker == 0xFF:
            at += 1
        elif marker in _JPEG_FRAMES:
            return int.from_bytes(data[at + 7 : at + 9]), int.from_bytes(data[at + 5 : at + 7])
        elif marker in _JPEG_WITHOUT_LENGTH:
            at += 2
        else:
            at += 2 + max(int.from_bytes(data[at + 2 : at + 4]), 2)
    return None


def _webp_size(data: bytes) -> tuple[int, int] | None:
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


_SIZES = {"image/png": _png_size, "image/jpeg": _jpeg_size, "image/gif": _gif_size, "image/webp": _webp_size}
