"""Images made fit to be sent to a model: whole, upright, still, and within the limits of size. Wraps Pillow."""

from __future__ import annotations

import base64
import io
from typing import TYPE_CHECKING

from wieldy.core.content import Image
from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.reading.imageheader import ImageHeader, ends_properly, read_header

if TYPE_CHECKING:
    from PIL.Image import Image as Raster

LARGEST_FILE = 64 << 20
LARGEST_SENT = 3_750_000  # 5 MB once in base64
LONGEST_SENT = 2000
LONGEST_SHRUNK = 1568
MOST_PIXELS = 80_000_000
QUALITIES = (85, 70, 50)
ORIENTATION = 0x0112


@record
class Picture:
    """An image ready to be sent, and what the file held."""

    media_type: str
    data: bytes
    width: int
    height: int
    original: ImageHeader

    @property
    def block(self) -> Image:
        """The image as a result carries it."""
        return Image(self.media_type, base64.b64encode(self.data).decode("ascii"))

    @property
    def shrunk(self) -> bool:
        """Whether it is smaller than the original."""
        return self.width * self.height < self.original.pixels


def picture(data: bytes, name: str) -> Picture:
    """The image in `data`, changed only as far as needed; `name` is what errors call it."""
    header = read_header(data)
    if header is None:
        raise ToolFailure(f"{name} is damaged: it starts like an image but its header cannot be read.")
    if header.pixels > MOST_PIXELS:
        raise ToolFailure(
            f"{name} is {header.width}×{header.height} pixels, too large to decode. Shrink or crop it first, with Bash."
        )
    try:
        from PIL import Image as pillow
    except ImportError:
        return _as_it_is(data, header, name)
    try:
        with pillow.open(io.BytesIO(data)) as raster:
            return _made_fit(raster, data, header)
    except Exception as error:  # a decoder that is given damaged bytes may raise anything
        raise ToolFailure(f"{name} is damaged and cannot be shown: {error}.") from None


def _as_it_is(data: bytes, header: ImageHeader, name: str) -> Picture:
    if not ends_properly(data, header.media_type):
        raise ToolFailure(f"{name} is damaged: its end is missing.")
    if not _within_limits(data, header):
        raise ToolFailure(
            f"{name} is {header.width}×{header.height} pixels and {len(data)} bytes, too large to be sent, and "
            "shrinking needs Pillow: pip install 'wieldy[docs]'."
        )
    return Picture(header.media_type, data, header.width, header.height, header)


def _within_limits(data: bytes, header: ImageHeader) -> bool:
    return len(data) <= LARGEST_SENT and header.long_side <= LONGEST_SENT


def _made_fit(raster: Raster, data: bytes, header: ImageHeader) -> Picture:
    turned = raster.getexif().get(ORIENTATION, 1) != 1
    moving = getattr(raster, "is_animated", False)
    if _within_limits(data, header) and not turned and not moving:
        raster.load()
        return Picture(header.media_type, data, header.width, header.height, header)
    raster.draft("RGB", (LONGEST_SHRUNK, LONGEST_SHRUNK))
    fit = _upright(raster)
    if not _within_limits(data, header):
        fit.thumbnail((LONGEST_SHRUNK, LONGEST_SHRUNK))
    media_type, encoded = _encoded(fit, header.media_type)
    return Picture(media_type, encoded, fit.width, fit.height, header)


def _upright(raster: Raster) -> Raster:
    from PIL import ImageOps

    upright = ImageOps.exif_transpose(raster)
    if upright.mode in {"RGB", "RGBA", "L"}:
        return upright
    if upright.mode.startswith("I"):
        return upright.point(lambda level: level / 256).convert("L")
    return upright.convert("RGBA" if upright.has_transparency_data else "RGB")


def _encoded(raster: Raster, media_type: str) -> tuple[str, bytes]:
    if media_type != "image/jpeg":
        lossless = io.BytesIO()
        raster.save(lossless, "PNG")
        if lossless.tell() <= LARGEST_SENT:
            return "image/png", lossless.getvalue()
    plain = raster.convert("RGB")
    for quality in QUALITIES:
        lossy = io.BytesIO()
        plain.save(lossy, "JPEG", quality=quality)
        if lossy.tell() <= LARGEST_SENT:
            break
    return "image/jpeg", lossy.getvalue()
