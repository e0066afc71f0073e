from __future__ import annotations

import base64
import json
import struct
import zlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.outcome import Image

pytestmark = pytest.mark.asyncio


def png() -> bytes:
    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", zlib.compress(b"\0\0")) + chunk(b"IEND", b"")


def picture(data: str) -> dict[str, Any]:
    return {"output_type": "display_data", "metadata": {}, "data": {"image/png": data, "text/plain": ["<Figure>"]}}


def code(id: str, source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "id": id,
        "metadata": {},
        "source": [source],
        "execution_count": 1,
        "outputs": list(outputs),
    }


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings={}) as toolbox:
        yield toolbox


def write(root: Path, *cells: dict[str, Any]) -> None:
    (root / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}))


@pytest.mark.parametrize("tool", ["Read", "NotebookRead"])
async def test_pictures_stand_behind_the_cell_that_shows_them(root: Path, box: Toolbox, tool: str) -> None:
    encoded = base64.b64encode(png()).decode()
    write(root, code("aa", "plot()", picture(encoded[:20] + "\n" + encoded[20:])), code("bb", "1"))
    result = await box.call(tool, file_path="n.ipynb")
    first, image, last = result.content
    assert first.as_wire()["text"].startswith(
        "<cell 0 id=aa code [1]>\nplot()\n<output>\n<Figure>\n[image/png]\n</output>"
    )
    assert isinstance(image, Image)
    assert image.media_type == "image/png"
    assert last.as_wire()["text"].startswith("<cell 1 id=bb")
    assert result.data["file"]["cells"][0]["pictures"] == 1
    assert encoded[:20] not in json.dumps(result.data)


@pytest.mark.parametrize("broken", ["not base64!", "aGk="])
async def test_a_damaged_picture_is_said_to_be_so(root: Path, box: Toolbox, broken: str) -> None:
    write(root, code("aa", "plot()", picture(broken)))
    result = await box.call("NotebookRead", notebook_path="n.ipynb")
    assert not result.is_error
    assert "[picture 1 of cell 0 is damaged" in result.text


async def test_one_cell_is_shown_alone(root: Path, box: Toolbox) -> None:
    write(root, code("aa", "one"), code("bb", "two"))
    for name in ("bb", "1", "cell-1"):
        result = await box.call("NotebookRead", notebook_path="n.ipynb", cell_id=name)
        assert result.text == "<cell 1 id=bb code [1]>\ntwo"
    assert (await box.call("NotebookRead", notebook_path="n.ipynb", cell_id="cc")).is_error


async def test_a_large_notebook_is_shown_in_part_and_every_cell_can_be_had(root: Path, box: Toolbox) -> None:
    loud = {"output_type": "stream", "name": "stdout", "text": "x" * 200_000}
    write(root, *(code(f"c{n}", f"source {n}", loud, loud, loud) for n in range(30)))
    result = await box.call("NotebookRead", notebook_path="n.ipynb")
    assert len(result.text) < 60_000
    assert "… [2 more outputs]" in result.text
    assert "<cell 29 id=c29 code [1]> source 29" in result.text
    assert "source 29" in (await box.call("NotebookRead", notebook_path="n.ipynb", cell_id="c29")).text
    written = await box.call("Write", file_path="n.ipynb", content="{}")
    assert "Only part of" in written.text


async def test_there_are_only_so_many_pictures(root: Path, box: Toolbox) -> None:
    shown = picture(base64.b64encode(png()).decode())
    write(root, *(code(f"c{n}", "plot()", shown) for n in range(14)))
    result = await box.call("NotebookRead", notebook_path="n.ipynb")
    assert sum(isinstance(block, Image) for block in result.content) == 10
    assert "not shown; read it alone with cell_id=c10" in result.text


async def test_an_error_is_shown_without_colours(root: Path, box: Toolbox) -> None:
    trace = {"output_type": "error", "ename": "E", "evalue": "no", "traceback": ["\x1b[0;31mE\x1b[0m: no"]}
    write(root, code("aa", "fail()", trace))
    assert "<output>\nE: no\n</output>" in (await box.call("NotebookRead", notebook_path="n.ipynb")).text


async def test_what_is_not_there_or_no_notebook_is_said(root: Path, box: Toolbox) -> None:
    (root / "n.ipynb").write_text("{")
    assert "no valid notebook" in (await box.call("NotebookRead", notebook_path="n.ipynb")).text
    assert "does not exist" in (await box.call("NotebookRead", notebook_path="m.ipynb")).text
    (root / "n.ipynb").write_text('{"cells": [], "nbformat": 4}')
    assert "has no cells" in (await box.call("NotebookRead", notebook_path="n.ipynb")).text
