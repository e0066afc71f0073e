from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.decision import Answer, Question
from wieldy.core.outcome import ToolResult

pytestmark = pytest.mark.asyncio


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


async def write(box: Toolbox, content: str, name: str = "a") -> ToolResult:
    return await box.call("Write", {"file_path": name, "content": content})


async def test_a_new_file_and_its_folders_are_made(root: Path, box: Toolbox) -> None:
    result = await write(box, "é\n", "x/y/z.txt")
    assert result.text == f"Created {root}/x/y/z.txt (1 line, 3 bytes)."
    assert result.data["type"] == "create"
    assert (root / "x/y/z.txt").read_bytes() == "é\n".encode()


async def test_an_existing_file_must_have_been_read(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(b"precious\n")
    result = await write(box, "x\n")
    assert result.is_error and "must be read first" in result.text
    assert (root / "a").read_bytes() == b"precious\n"


async def test_a_file_that_was_read_is_replaced_and_the_change_shown(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(b"one\ntwo\n")
    await box.call("Read", {"file_path": "a"})
    result = await write(box, "one\n2\n")
    assert result.text.endswith("@@ -1,2 +1,2 @@\n one\n-two\n+2") and result.data["type"] == "update"


@pytest.mark.parametrize(
    ("before", "content", "after"),
    [
        (b"\xef\xbb\xbfa\r\nb\r\n", "a\nc\nd\n", b"\xef\xbb\xbfa\r\nc\r\nd\r\n"),
        ("\ufeffa\nb\n".encode("utf-16-le"), "a\nc\n", "\ufeffa\nc\n".encode("utf-16-le")),
        (b"a\nb", "a\nb\n", b"a\nb\n"),
        (b"a\r\nb\nc\r\n", "a\nb\nX\n", b"a\r\nb\nX\r\n"),
        (b"a\n", "", b""),
    ],
)
async def test_encoding_mark_and_line_ends_of_the_file_are_kept(
    root: Path, box: Toolbox, before: bytes, content: str, after: bytes
) -> None:
    (root / "a").write_bytes(before)
    await box.call("Read", {"file_path": "a"})
    result = await write(box, content)
    assert not result.is_error, result.text
    assert (root / "a").read_bytes() == after


async def test_a_file_that_changed_since_is_not_overwritten(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(b"one\n")
    await box.call("Read", {"file_path": "a"})
    (root / "a").write_bytes(b"two\n")
    result = await write(box, "x\n")
    assert result.is_error and "changed on disk since you read it" in result.text
    assert (root / "a").read_bytes() == b"two\n"


async def test_lines_never_seen_are_not_overwritten(root: Path, box: Toolbox) -> None:
    (root / "a").write_text("".join(f"{n}\n" for n in range(30)))
    await box.call("Read", {"file_path": "a", "limit": 10})
    result = await write(box, "x\n")
    assert result.is_error and "lines 11-30 are unknown" in result.text and "offset=11" in result.text
    await box.call("Read", {"file_path": "a", "offset": 11})
    assert not (await write(box, "x\n")).is_error


async def test_lines_never_seen_stay_unknown_after_an_edit_beside_them(root: Path, box: Toolbox) -> None:
    (root / "a").write_text("".join(f"{n}\n" for n in range(30)))
    await box.call("Read", {"file_path": "a", "limit": 10})
    await box.call("Edit", {"file_path": "a", "old_string": "\n5\n", "new_string": "\nfive\n"})
    assert "are unknown" in (await write(box, "x\n")).text


@pytest.mark.parametrize("codec", ["utf-8", "utf-16"])
async def test_a_byte_order_mark_is_kept_and_not_doubled(root: Path, box: Toolbox, codec: str) -> None:
    (root / "a").write_bytes("\ufeffone\n".encode("utf-8") if codec == "utf-8" else "one\n".encode("utf-16"))
    await box.call("Read", {"file_path": "a"})
    for content in ("\ufefftwo\n", "three\n", "\ufeffthree\n"):
        assert not (await write(box, content)).is_error
        assert (root / "a").read_bytes().decode(codec).replace("\ufeff", "", codec == "utf-8") == content.strip(
            "\ufeff"
        )


async def test_an_empty_file_needs_no_reading(root: Path, box: Toolbox) -> None:
    (root / "a").touch()
    assert not (await write(box, "x\n")).is_error
    assert (root / "a").read_bytes() == b"x\n"


async def test_what_is_no_text_is_not_overwritten(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(b"\x89PNG\r\n\x1a\n\x00")
    result = await write(box, "x\n")
    assert result.is_error and "PNG image" in result.text


async def test_placeholders_are_refused_unless_the_file_had_them(root: Path, box: Toolbox) -> None:
    (root / "a").write_text("# ... existing code ...\n")
    await box.call("Read", {"file_path": "a"})
    result = await write(box, "x = 1\n# ... rest of the code unchanged ...\n")
    assert result.is_error and "Line 2 of content is a placeholder" in result.text
    assert not (await write(box, "# ... existing code ...\nx = 1\n")).is_error


async def test_a_new_file_may_hold_what_looks_like_a_placeholder(root: Path, box: Toolbox) -> None:
    (root / "empty").touch()
    for name in ("a", "empty"):
        assert not (await write(box, "x = 1\n// ... existing code ...\n", name)).is_error
        assert (root / name).read_text() == "x = 1\n// ... existing code ...\n"


async def test_the_same_content_again_is_said_to_be_the_same(root: Path, box: Toolbox) -> None:
    await write(box, "x\n")
    inode = (root / "a").stat().st_ino
    result = await write(box, "x\n")
    assert "already has exactly this content" in result.text and (root / "a").stat().st_ino == inode


async def test_half_a_surrogate_pair_is_refused(root: Path, box: Toolbox) -> None:
    result = await write(box, "a\ud83d")
    assert result.is_error and not (root / "a").exists()


async def test_a_folder_in_the_way_is_named(root: Path, box: Toolbox) -> None:
    (root / "file").write_text("x")
    (root / "folder").mkdir()
    for name, words in (("folder", "is a folder"), ("file/below", "is a file, not a folder")):
        result = await write(box, "x", name)
        assert result.is_error and words in result.text


async def test_control_characters_that_a_write_drops_are_told_in_the_result_and_the_question(root: Path, box: Toolbox):
    (root / "a").write_bytes(b"one\ntwo \x1b[1mbold\x1b[0m\x07\n\x0cthree\n10%\r20%\n")
    page = (await box.call("Read", {"file_path": "a"})).text
    assert "1\tone\n2\ttwo [1mbold[0m\n3\tthree\n4\t10%␍20%\n" in page
    assert "Not shown: 4 control characters (1 BEL, 1 form feed, 2 ESC), first in line 2." in page
    assert "␍ stands for a lone carriage return" in page
    result = await write(box, "one\ntwo [1mbold[0m\nthree\n10%␍30%\n")
    said = "The old content had 4 control characters (1 BEL, 1 form feed, 2 ESC) that the new one lacks."
    assert said in result.text
    assert (root / "a").read_bytes() == b"one\ntwo [1mbold[0m\nthree\n10%\r30%\n"
    assert "that the new one lacks" not in (await write(box, "one\n10%␍30%\n")).text

    questions: list[Question] = []

    async def ask(question: Question) -> Answer:
        questions.append(question)
        return Answer(False)

    (root / "b").write_bytes(b"a\x0cb\n")
    async with Toolbox(root, settings={}, ask=ask) as asking:
        await asking.call("Read", {"file_path": "b"})
        await write(asking, "ab\n", "b")
    assert "1 control character (1 form feed)" in str(questions[0].decision.reasons)
