from __future__ import annotations

import asyncio
import io
import json
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from PIL import Image as pillow

from wieldy import Toolbox
from wieldy.core.effects import InTurn, Reads
from wieldy.core.outcome import Image, Text
from wieldy.tools.read import read


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    folder.mkdir()
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings={}, mode="bypassPermissions") as toolbox:
        yield toolbox


@pytest.mark.asyncio
async def test_a_text_comes_with_line_numbers_and_typed_data(root: Path, box: Toolbox) -> None:
    (root / "a.txt").write_text("one\n\ttwo\n")
    result = await box.call("Read", {"file_path": "a.txt"})
    assert (result.text, result.is_error) == ("1\tone\n2\t\ttwo", False)
    assert result.data == {
        "type": "text",
        "file": {
            "filePath": str(root / "a.txt"),
            "content": "one\n\ttwo",
            "numLines": 2,
            "startLine": 1,
            "totalLines": 2,
            "encoding": "utf-8",
        },
    }
    json.dumps(result.data)


@pytest.mark.asyncio
async def test_a_page_says_how_to_read_on_and_offset_zero_is_the_first_line(root: Path, box: Toolbox) -> None:
    (root / "a.txt").write_text("".join(f"l{n}\n" for n in range(1, 101)))
    result = await box.call("Read", {"path": "a.txt", "offset": 0, "limit": 2})
    assert result.text == ("1\tl1\n2\tl2\n<system-reminder>Lines 1-2 of 100. Read on with offset=3.</system-reminder>")
    assert (await box.call("Read", {"path": "a.txt", "offset": 99})).text.startswith("99\tl99\n100\tl100\n<system")


@pytest.mark.asyncio
async def test_two_thousand_ordinary_lines_are_one_result_that_needs_no_file_of_its_own(
    root: Path, box: Toolbox
) -> None:
    line = "a line of about eighty characters, as they stand in source code everywhere......"
    (root / "a.txt").write_text(f"{line}\n" * 5000)
    result = await box.call("Read", {"file_path": "a.txt"})
    assert f"2000\t{line}\n" in result.text
    assert result.text.endswith("Lines 1-2000 of 5000. Read on with offset=2001.</system-reminder>")


@pytest.mark.asyncio
async def test_an_empty_file_and_a_page_beyond_the_end_are_reminders_not_errors(root: Path, box: Toolbox) -> None:
    (root / "empty").touch()
    (root / "short").write_text("x\n")
    empty = await box.call("Read", {"file_path": "empty"})
    beyond = await box.call("Read", {"file_path": "short", "offset": 7})
    assert (empty.is_error, beyond.is_error) == (False, False)
    assert empty.text == "<system-reminder>The file exists but is empty.</system-reminder>"
    assert "has 1 lines, so offset=7 is beyond its end" in beyond.text


@pytest.mark.asyncio
async def test_encoding_and_line_endings_are_mentioned(root: Path, box: Toolbox) -> None:
    (root / "gbk.txt").write_bytes("读取配置文件\r\n并初始化系统\r\n".encode("gbk"))
    result = await box.call("Read", {"file_path": "gbk.txt"})
    assert result.text.startswith("1\t读取配置文件\n2\t并初始化系统\n<system-reminder>Encoding: gb18030")
    assert "Line endings: CRLF." in result.text


@pytest.mark.asyncio
async def test_what_cannot_be_read_is_refused_at_once_with_a_way_on(root: Path, box: Toolbox) -> None:
    os.mkfifo(root / "pipe")
    (root / "loop").symlink_to("loop")
    (root / "data.bin").write_bytes(b"\x7fELF\x02\x01\x01" + b"\0" * 50)
    (root / "settings.toml").write_text("x")
    expected = {
        ".": "is a directory, not a file. Use LS or Glob",
        "pipe": "named pipe",
        "/dev/zero": "character device",
        "loop": "leads back to itself",
        "data.bin": "is not text: ELF executable, 57 bytes",
        "setings.toml": f"does not exist. Did you mean {root}/settings.toml?",
        "/proc/self/mem": "cannot be read",
        "nowhere/at/all/\udcff": "does not exist",
    }
    for path, said in expected.items():
        result = await asyncio.wait_for(box.call("Read", {"file_path": path}), 20)
        assert result.is_error, path
        assert said in result.text
        result.text.encode()


@pytest.mark.asyncio
async def test_a_file_with_a_name_that_is_not_utf8_is_shown(root: Path, box: Toolbox) -> None:
    path = os.path.join(str(root), os.fsdecode(b"caf\xe9.txt"))
    Path(path).write_text("found")
    result = await box.call("Read", {"file_path": path})
    assert result.text == "1\tfound"
    json.dumps(result.data, ensure_ascii=False).encode()


@pytest.mark.asyncio
async def test_half_a_character_in_a_path_is_refused_in_words(box: Toolbox) -> None:
    result = await box.call("Read", {"file_path": "a\ud83d.txt"})
    assert result.is_error
    assert "half of a character" in result.text
    result.text.encode()


@pytest.mark.asyncio
async def test_the_same_unchanged_page_is_not_sent_twice_in_a_row(root: Path, box: Toolbox) -> None:
    (root / "a.txt").write_text("x\ny\n")
    call = {"file_path": "a.txt"}
    first, again, insisted = [await box.call("Read", call) for _ in range(3)]
    assert first.text == insisted.text == "1\tx\n2\ty"
    assert again.text.startswith(f"Unchanged since your last read: {root}/a.txt, lines 1-2.")
    assert again.data == {"type": "file_unchanged", "file": {"filePath": f"{root}/a.txt"}}


@pytest.mark.asyncio
async def test_a_changed_file_and_another_range_are_always_sent(root: Path, box: Toolbox) -> None:
    (root / "a.txt").write_text("x\ny\n")
    await box.call("Read", {"file_path": "a.txt"})
    assert (await box.call("Read", {"file_path": "a.txt", "offset": 2})).text.startswith("2\ty")
    (root / "a.txt").write_text("x\nz\n")
    assert (await box.call("Read", {"file_path": "a.txt"})).text == "1\tx\n2\tz"


@pytest.mark.asyncio
async def test_a_touched_file_is_still_the_same_file(root: Path, box: Toolbox) -> None:
    (root / "a.txt").write_text("x\n")
    await box.call("Read", {"file_path": "a.txt"})
    os.utime(root / "a.txt", (1, 1))
    assert (await box.call("Read", {"file_path": "a.txt"})).data["type"] == "file_unchanged"


@pytest.mark.asyncio
async def test_a_setting_turns_the_short_answer_off(root: Path) -> None:
    (root / "a.txt").write_text("x\n")
    async with Toolbox(root, settings={"read": {"unchangedStub": False}}, mode="bypassPermissions") as box:
        texts = {(await box.call("Read", {"file_path": "a.txt"})).text for _ in range(3)}
    assert texts == {"1\tx"}


@pytest.mark.asyncio
async def test_what_was_read_is_remembered_for_editing(root: Path, box: Toolbox) -> None:
    (root / "a.txt").write_bytes(b"1\n2\n3\n")
    await box.call("Read", {"file_path": "a.txt", "offset": 2, "limit": 1})
    state = box.workspace.services.read_state
    reading = state.reading(str(root / "a.txt"))
    assert reading is not None
    assert (reading.line_ranges, reading.whole) == (((2, 2),), False)
    assert state.content(str(root / "a.txt")) == b"1\n2\n3\n"
    await box.call("Read", {"file_path": "a.txt"})
    reading = state.reading(str(root / "a.txt"))
    assert reading is not None
    assert reading.whole


@pytest.mark.asyncio
async def test_an_image_is_a_picture_block_and_says_when_it_was_shrunk(root: Path, box: Toolbox) -> None:
    pillow.new("RGB", (40, 30)).save(root / "small.png")
    pillow.new("RGB", (4000, 1000)).save(root / "large.anything", "JPEG")
    small = await box.call("Read", {"file_path": "small.png"})
    assert [type(block) for block in small.content] == [Image]
    assert small.data["type"] == "image"
    image, note = (await box.call("Read", {"file_path": "large.anything"})).content
    assert isinstance(image, Image)
    assert note == Text("Shown at 1568×392 pixels; the file has 4000×1000.")


@pytest.mark.asyncio
async def test_a_pdf_is_read_page_by_page(root: Path, box: Toolbox) -> None:
    sheets = [pillow.new("RGB", (100, 100)) for _ in range(12)]
    held = io.BytesIO()
    sheets[0].save(held, "PDF", save_all=True, append_images=sheets[1:])
    (root / "scan.pdf").write_bytes(held.getvalue())
    asked = await box.call("Read", {"file_path": "scan.pdf"})
    assert asked.is_error
    assert "has 12 pages" in asked.text
    drawn = await box.call("Read", {"file_path": "scan.pdf", "pages": "3", "as_images": True})
    assert [type(block) for block in drawn.content] == [Text, Image]
    assert drawn.data["file"]["pages"] == [3]


@pytest.mark.asyncio
async def test_a_notebook_is_shown_by_cells(root: Path, box: Toolbox) -> None:
    cells = [{"cell_type": "code", "id": "a1", "source": ["x = 1"], "outputs": [], "execution_count": None}]
    (root / "n.ipynb").write_text(json.dumps({"cells": cells, "metadata": {}, "nbformat": 4}))
    result = await box.call("Read", {"file_path": "n.ipynb"})
    assert result.text == "<cell 0 id=a1 code>\nx = 1"
    assert result.data["file"]["cells"][0]["id"] == "a1"


@pytest.mark.asyncio
async def test_a_broken_or_empty_notebook_is_shown_as_text_so_that_it_can_be_mended(root: Path, box: Toolbox) -> None:
    (root / "n.ipynb").write_text('{"cells": [\n  oops\n]}')
    (root / "empty.ipynb").touch()
    assert (await box.call("Read", {"file_path": "n.ipynb"})).text == '1\t{"cells": [\n2\t  oops\n3\t]}'
    assert "is empty" in (await box.call("Read", {"file_path": "empty.ipynb"})).text
    assert box.workspace.services.read_state.reading(str(root / "n.ipynb")) is not None


@pytest.mark.asyncio
async def test_a_damaged_picture_does_not_count_as_read(root: Path, box: Toolbox) -> None:
    (root / "torn.png").write_bytes(b"\x89PNG\r\n\x1a\n" + b"\0" * 40)
    result = await box.call("Read", {"file_path": "torn.png"})
    assert (result.is_error, "is damaged" in result.text) == (True, True)
    assert box.workspace.services.read_state.reading(str(root / "torn.png")) is None


@pytest.mark.asyncio
async def test_a_cancelled_read_of_a_large_file_stops_its_thread(root: Path, box: Toolbox) -> None:
    with open(root / "large", "wb") as file:
        file.write(b"#" * 300_000 + b"\n")
        file.truncate(20 << 30)
    reading = asyncio.ensure_future(box.call("Read", {"file_path": "large", "offset": 10**9}))
    await asyncio.sleep(0.3)
    reading.cancel()
    await asyncio.gather(reading, return_exceptions=True)
    for _ in range(200):
        if not open_in_this_process(root / "large"):
            break
        await asyncio.sleep(0.05)
    assert not open_in_this_process(root / "large")


def open_in_this_process(path: Path) -> bool:
    def leads_there(descriptor: str) -> bool:
        try:
            return os.readlink(f"/proc/self/fd/{descriptor}") == str(path)
        except FileNotFoundError:
            return False

    return any(map(leads_there, os.listdir("/proc/self/fd")))


def test_a_read_declares_what_it_reads_and_changes_nothing() -> None:
    workspace: Any = None
    assert read.effects({"file_path": "/x"}, workspace) == (Reads("/x"), InTurn("/x"))
    assert read.read_only
    assert len(json.dumps(read.schema)) <= 700
    assert len(read.description) <= 350
    assert len(read.prompt) <= 350
