"""However a file is damaged, reading it ends in something to show or in a failure in words."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image as pillow

from wieldy.core.errors import ToolFailure
from wieldy.files.notebooks import read_notebook
from wieldy.files.reading.media import prepare_image, read_header

LAW = settings(max_examples=150, deadline=None)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["cell_type", "source", "outputs", "text", "data", "text/plain", "traceback", "id", "cells"]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


def image(kind: str, **options: Any) -> bytes:
    held = io.BytesIO()
    pillow.effect_noise((24, 18), 90).convert("RGB").save(held, kind, **options)
    return held.getvalue()


IMAGES = [
    image("PNG"),
    image("JPEG"),
    image("GIF"),
    image("WEBP"),
    image("WEBP", lossless=True),
    image("JPEG", exif=b""),
]


@st.composite
def damaged_images(draw: st.DrawFn) -> bytes:
    data = bytearray(draw(st.sampled_from(IMAGES)))
    for _ in range(draw(st.integers(1, 6))):
        data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
    return bytes(data[: draw(st.integers(0, len(data)))]) if draw(st.booleans()) else bytes(data)


@LAW
@given(data=damaged_images())
@pytest.mark.filterwarnings("ignore")
def test_a_damaged_image_is_shown_or_refused(data: bytes) -> None:
    try:
        found = prepare_image(data, "it")
    except ToolFailure as failure:
        assert str(failure).startswith("it is ")
    else:
        assert read_header(found.data) is not None


@LAW
@given(
    data=st.sampled_from([image[:12] for image in IMAGES]).flatmap(
        lambda head: st.binary(max_size=40).map(head.__add__)
    )
)
def test_a_header_is_read_from_any_bytes(data: bytes) -> None:
    header = read_header(data)
    assert header is None or (header.width > 0 and header.height > 0)


@LAW
@given(cells=st.lists(json_values, max_size=4))
def test_any_cells_can_be_shown(cells: list[Any]) -> None:
    found = read_notebook(json.dumps({"cells": cells}).encode(), "it")
    assert len(found.cells) == len(cells)
    assert str(found) or not cells


@LAW
@given(data=st.one_of(st.binary(max_size=40), json_values.map(lambda value: json.dumps(value).encode())))
def test_any_bytes_are_a_notebook_or_refused(data: bytes) -> None:
    try:
        read_notebook(data, "it")
    except ToolFailure as failure:
        assert str(failure).startswith("it is no valid notebook")
