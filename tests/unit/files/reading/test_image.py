from __future__ import annotations

import base64
import io
import os
import subprocess
import sys
import zlib
from pathlib import Path
from typing import Any

import pytest
from PIL import Image as pillow

from wieldy.core.errors import ToolFailure
from wieldy.files.detection import media_type_of
from wieldy.files.reading.media import (
    LARGEST_SENT,
    LONGEST_SHRUNK,
    MAX_PIXELS,
    ImageHeader,
    has_end,
    prepare_image,
    read_header,
)

FORMATS = {"PNG": "image/png", "JPEG": "image/jpeg", "GIF": "image/gif", "WEBP": "image/webp"}


def encoded(raster: Any, kind: str, **options: Any) -> bytes:
    held = io.BytesIO()
    raster.save(held, kind, **options)
    return held.getvalue()


def decoded(data: bytes) -> Any:
    raster = pillow.open(io.BytesIO(data))
    raster.load()
    return raster


def noise(width: int, height: int) -> Any:
    return pillow.frombytes("RGB", (width, height), os.urandom(width * height * 3))


@pytest.mark.parametrize("kind", FORMATS)
def test_type_and_size_are_read_without_decoding(kind: str) -> None:
    data = encoded(pillow.new("RGB", (37, 21)), kind)
    assert read_header(data) == ImageHeader(FORMATS[kind], 37, 21)
    assert has_end(data, FORMATS[kind])
    assert not has_end(data[: len(data) // 2], FORMATS[kind])


@pytest.mark.parametrize(
    "options",
    [{"lossless": True}, {"quality": 50}, {"save_all": True, "append_images": [pillow.new("RGB", (37, 21), "red")]}],
)
def test_every_form_of_webp_tells_its_size(options: dict[str, Any]) -> None:
    assert read_header(encoded(pillow.new("RGB", (37, 21)), "WEBP", **options)) == ImageHeader("image/webp", 37, 21)


@pytest.mark.parametrize("options", [{"progressive": True}, {"exif": b"Exif\0\0" + b"x" * 60_000}, {"comment": b"c"}])
def test_every_form_of_jpeg_tells_its_size(options: dict[str, Any]) -> None:
    assert read_header(encoded(pillow.new("L", (37, 21)), "JPEG", **options)) == ImageHeader("image/jpeg", 37, 21)


@pytest.mark.parametrize("kind", FORMATS)
def test_a_header_that_is_cut_short_is_no_header(kind: str) -> None:
    data = encoded(pillow.new("RGB", (37, 21)), kind)
    for end in range(10):
        assert read_header(data[:end]) is None


def test_other_files_are_no_images() -> None:
    assert media_type_of(b"BM") is None
    assert media_type_of(b"RIFF\0\0\0\0WAVE") is None
    assert read_header(b"<svg/>") is None


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_within_the_limits_is_sent_as_it_is(kind: str) -> None:
    data = encoded(pillow.new("RGB", (100, 60), "teal"), kind)
    found = prepare_image(data, "it")
    assert (found.data, found.media_type, found.shrunk) == (data, FORMATS[kind], False)
    assert base64.b64decode(found.block.data) == data


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_with_too_many_pixels_is_shrunk(kind: str) -> None:
    found = prepare_image(encoded(pillow.new("RGB", (3000, 1000), "teal"), kind), "it")
    assert decoded(found.data).size == (found.width, found.height) == (LONGEST_SHRUNK, 523)
    assert found.shrunk
    assert FORMATS[decoded(found.data).format] == found.media_type


@pytest.mark.parametrize("kind", ["PNG", "WEBP"])
def test_an_image_with_too_many_bytes_is_made_smaller(kind: str) -> None:
    data = encoded(noise(1900, 1300), kind, **({"lossless": True, "quality": 0, "method": 0} if kind == "WEBP" else {}))
    assert len(data) > LARGEST_SENT
    found = prepare_image(data, "it")
    assert len(found.data) <= LARGEST_SENT
    assert decoded(found.data).size == (found.width, found.height)


def test_transparency_survives_shrinking() -> None:
    found = prepare_image(encoded(pillow.new("RGBA", (2500, 10), (255, 0, 0, 0)), "PNG"), "it")
    assert decoded(found.data).getpixel((0, 0))[3] == 0


@pytest.mark.parametrize("mode", ["1", "L", "P", "LA", "I;16", "CMYK"])
def test_every_kind_of_pixel_can_be_shrunk(mode: str) -> None:
    kind = "JPEG" if mode == "CMYK" else "PNG"
    found = prepare_image(encoded(pillow.new(mode, (2500, 20)), kind), "it")
    assert decoded(found.data).width == LONGEST_SHRUNK


def test_sixteen_bits_of_grey_keep_their_shades() -> None:
    found = prepare_image(encoded(pillow.new("I;16", (2500, 20), 0x8000), "PNG"), "it")
    assert decoded(found.data).getpixel((5, 5)) == 0x80


def test_a_photo_is_turned_upright() -> None:
    exif = pillow.Exif()
    exif[0x0112] = 6
    found = prepare_image(encoded(pillow.new("RGB", (40, 20)), "JPEG", exif=exif), "it")
    assert decoded(found.data).size == (found.width, found.height) == (20, 40)
    assert decoded(found.data).getexif().get(0x0112, 1) == 1


def test_a_film_becomes_its_first_picture() -> None:
    frames = [pillow.new("RGB", (30, 30), colour) for colour in ("red", "blue", "green")]
    found = prepare_image(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), "it")
    still = decoded(found.data)
    assert getattr(still, "n_frames", 1) == 1
    assert still.convert("RGB").getpixel((3, 3)) == (255, 0, 0)


@pytest.mark.parametrize("kind", FORMATS)
def test_an_image_that_is_cut_off_is_refused(kind: str) -> None:
    data = encoded(noise(80, 80), kind)
    with pytest.raises(ToolFailure, match=r"^photo is damaged"):
        prepare_image(data[: len(data) // 2], "photo")


def test_a_decompression_bomb_is_refused_before_it_is_decoded() -> None:
    side = int(MAX_PIXELS**0.5) + 100
    header = side.to_bytes(4) * 2 + b"\x08\x02\0\0\0"
    chunk = b"IHDR" + header
    data = b"\x89PNG\r\n\x1a\n" + len(header).to_bytes(4) + chunk + zlib.crc32(chunk).to_bytes(4)
    with pytest.raises(ToolFailure, match="too large to decode"):
        prepare_image(data, "bomb")


def test_without_pillow_small_images_pass_and_others_say_what_is_missing(tmp_path: Path) -> None:
    (tmp_path / "small").write_bytes(encoded(pillow.new("RGB", (30, 30)), "PNG"))
    (tmp_path / "large").write_bytes(encoded(pillow.new("RGB", (3000, 30)), "PNG"))
    (tmp_path / "torn").write_bytes(encoded(pillow.new("RGB", (30, 30)), "PNG")[:-20])
    program = (
        "import sys, pathlib; sys.modules['PIL'] = None\n"
        "from wieldy.files.reading.media import prepare_image\n"
        "for name in ('small', 'large', 'torn'):\n"
        "    try: print(prepare_image(pathlib.Path(name).read_bytes(), name).media_type)\n"
        "    except Exception as error: print(error)\n"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = [sys.executable, "-c", program]
    done = subprocess.run(run, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60)
    small, large, torn = done.stdout.splitlines()
    assert small == "image/png"
    assert large.endswith("pip install 'wieldy[docs]'.")
    assert torn == "torn is damaged: its end is missing."
