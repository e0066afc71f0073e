from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.effects import Reads, Writes
from wieldy.core.outcome import ToolResult
from wieldy.engine.workspace_services import open_workspace
from wieldy.tools.edit import edit as edit_tool

pytestmark = pytest.mark.asyncio
Edit = Callable[..., Awaitable[ToolResult]]


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


@pytest.fixture
def edit(box: Toolbox) -> Edit:
    """Reads the file, then edits it."""

    async def read_and_edit(path: Path, old: str, new: str, **more: Any) -> ToolResult:
        await box.call("Read", {"file_path": str(path)})
        return await box.call("Edit", {"file_path": str(path), "old_string": old, "new_string": new, **more})

    return read_and_edit


async def test_an_edit_is_written_and_shown_as_a_diff(root: Path, edit: Edit) -> None:
    file = root / "a.py"
    file.write_bytes(b"x = 1\ny = 2\n")
    result = await edit(file, "y = 2", "y = 3")
    assert not result.is_error
    assert file.read_bytes() == b"x = 1\ny = 3\n"
    assert result.text.startswith(f"Changed {file}: 1 replacement, +1 -1 lines.\n--- {file}")
    assert result.text.endswith("@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3")
    patch = {"oldStart": 1, "oldLines": 2, "newStart": 1, "newLines": 2, "lines": [" x = 1", "-y = 2", "+y = 3"]}
    assert result.data["structuredPatch"] == [patch]
    assert result.data["snippet"] == "1\tx = 1\n2\ty = 3"


async def test_a_file_that_was_not_read_must_be_read_first(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(b"x\n")
    result = await box.call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"})
    assert result.is_error and "must be read first" in result.text
    assert (root / "a").read_bytes() == b"x\n"


async def test_a_file_our_own_tools_wrote_counts_as_read(root: Path, box: Toolbox) -> None:
    await box.call("Write", {"file_path": "a", "content": "x\n"})
    first = await box.call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"})
    second = await box.call("Edit", {"file_path": "./a", "old_string": "y", "new_string": "z"})
    assert not first.is_error and not second.is_error
    assert (root / "a").read_bytes() == b"z\n"


async def test_part_of_a_file_read_is_enough_to_edit_it(root: Path, box: Toolbox) -> None:
    (root / "a").write_text("".join(f"{n}\n" for n in range(100)))
    await box.call("Read", {"file_path": "a", "offset": 50, "limit": 5})
    assert not (await box.call("Edit", {"file_path": "a", "old_string": "\n51\n", "new_string": "\nx\n"})).is_error


async def test_a_read_and_an_edit_in_one_turn_are_made_in_order(root: Path, box: Toolbox) -> None:
    (root / "a").write_bytes(b"x\n")
    results = await box.call_many(
        [
            ("Read", {"file_path": "a"}),
            ("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"}),
            ("Edit", {"file_path": "a", "old_string": "y", "new_string": "z"}),
        ]
    )
    assert [result.is_error for result in results] == [False, False, False]
    assert (root / "a").read_bytes() == b"z\n"


async def test_touching_a_file_does_not_hold_up_an_edit(root: Path, box: Toolbox) -> None:
    file = root / "a"
    file.write_bytes(b"x\n")
    await box.call("Read", {"file_path": "a"})
    os.utime(file, (1, 1))
    result = await box.call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"})
    assert not result.is_error and "changed on disk" not in result.text


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("", "x", "use Write"),
        ("x", "x", "are the same"),
        ("x", "a\n# ... rest of the file ...\n", "placeholder"),
        ("zebra", "x", "not found"),
        ("1\tx = 1", "y", "line numbers"),
        ("l", "y", "occurs 2 times (lines 2, 3)"),
        ("x = 1\r\n", "x = 1\n", "differ only in line ends"),
    ],
)
async def test_mistakes_are_answered_with_what_to_do(root: Path, edit: Edit, old: str, new: str, words: str) -> None:
    file = root / "a.py"
    file.write_bytes(b"x = 1\nl\nl\n")
    result = await edit(file, old, new)
    assert result.is_error and words in result.text
    assert file.read_bytes() == b"x = 1\nl\nl\n"


async def test_a_missing_file_suggests_names_and_write(root: Path, box: Toolbox) -> None:
    (root / "module.py").write_text("x")
    result = await box.call("Edit", {"file_path": "modul.py", "old_string": "x", "new_string": "y"})
    assert result.is_error and str(root / "module.py") in result.text and "use Write" in result.text


async def test_what_is_no_text_file_is_refused_without_waiting(root: Path, box: Toolbox) -> None:
    os.mkfifo(root / "pipe")
    (root / "empty").write_bytes(b"")
    (root / "image.bin").write_bytes(b"\x89PNG\r\n\x1a\n\x00\x00")
    await box.call("Read", {"file_path": "empty"})
    for name, words in [
        ("pipe", "a pipe, socket or device"),
        (".", "is a folder"),
        ("image.bin", "PNG image"),
        ("empty", "Use Write"),
    ]:
        result = await box.call("Edit", {"file_path": name, "old_string": "a", "new_string": "b"})
        assert result.is_error and words in result.text


async def test_a_file_over_the_limit_is_refused_unless_allowed(root: Path) -> None:
    (root / "big").write_bytes(b"x" * 200 + b"\nold\n")
    edit = {"file_path": "big", "old_string": "old", "new_string": "new"}
    for limit, refused in ((100, True), (1000, False)):
        async with Toolbox(root, settings={"edit": {"maxBytes": limit}}, mode="bypassPermissions") as box:
            await box.call("Read", {"file_path": "big"})
            result = await box.call("Edit", edit)
            assert result.is_error == refused
            assert not refused or "edit.maxBytes" in result.text


async def test_characters_the_encoding_lacks_leave_the_file_alone(root: Path, edit: Edit) -> None:
    file = root / "a.txt"
    data = "Привет, мир. Это проверка кодировки\n".encode("cp1251") * 9
    file.write_bytes(data)
    result = await edit(file, "Привет", "€あ", replace_all=True)
    assert result.is_error and "'あ' (U+3042, line 1, column 2)" in result.text and "cp1251" in result.text
    assert file.read_bytes() == data


async def test_a_tolerant_match_is_named_in_the_result(root: Path, edit: Edit) -> None:
    file = root / "a.py"
    file.write_text("if x:\n\ty()\n")
    result = await edit(file, "if x:\n    y()", "if x:\n    z()")
    assert "tabs instead of spaces" in result.text
    assert file.read_text() == "if x:\n\tz()\n"


async def test_tolerance_is_off_where_the_setting_says_exact(root: Path) -> None:
    (root / "a").write_text("\ty()\n")
    async with Toolbox(root, settings={"edit": {"tolerance": "exact"}}, mode="bypassPermissions") as box:
        await box.call("Read", {"file_path": "a"})
        result = await box.call("Edit", {"file_path": "a", "old_string": "  y()\n", "new_string": "z"})
    assert result.is_error and "2 spaces, the file has a tab" in result.text


@pytest.mark.parametrize("mode", [0o755, 0o600, 0o444])
async def test_the_mode_of_the_file_is_kept(root: Path, edit: Edit, mode: int) -> None:
    file = root / "a"
    file.write_bytes(b"x\n")
    file.chmod(mode)
    result = await edit(file, "x", "y")
    assert file.stat().st_mode & 0o777 == mode
    assert (file.read_bytes() == b"y\n") != result.is_error


async def test_a_symlink_stays_one_and_its_target_is_edited(root: Path, edit: Edit) -> None:
    (root / "target").write_bytes(b"x\n")
    (root / "link").symlink_to("target")
    result = await edit(root / "link", "x", "y")
    assert (root / "link").is_symlink() and (root / "target").read_bytes() == b"y\n"
    assert "is a symlink and stays one" in result.text


async def test_a_hard_link_stays_one_file(root: Path, edit: Edit) -> None:
    (root / "a").write_bytes(b"x\n")
    os.link(root / "a", root / "b")
    assert not (await edit(root / "a", "x", "y")).is_error
    assert (root / "b").read_bytes() == b"y\n" and os.path.samefile(root / "a", root / "b")


async def test_one_line_of_ten_megabytes_is_edited_and_answered_briefly(root: Path, edit: Edit) -> None:
    file = root / "long.js"
    file.write_bytes(b"a=1;" * 2_500_000 + b"needle;" + b"b=2;")
    missed = await edit(file, "noodle;", "x")
    assert missed.is_error and len(missed.text) < 5_000
    result = await edit(file, "needle;", "thread;")
    assert not result.is_error and len(result.text) < 5_000
    assert file.read_bytes().endswith(b"a=1;thread;b=2;") and file.stat().st_size == 10_000_011


async def test_nobody_is_asked_about_an_edit_that_cannot_be_made(root: Path) -> None:
    (root / "a").write_bytes(b"x\n")
    asked: list[str] = []

    def ask(question: Any) -> bool:
        asked.append(question.plan.input["old_string"])
        return True

    async with Toolbox(root, settings={}, ask=ask) as box:
        unread = await box.call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"})
        await box.call("Read", {"file_path": "a"})
        missed = await box.call("Edit", {"file_path": "a", "old_string": "z", "new_string": "y"})
        made = await box.call("Edit", {"file_path": "a", "old_string": "x", "new_string": "y"})
    assert (unread.is_error, missed.is_error, made.is_error) == (True, True, False)
    assert asked == ["x"]


async def test_a_file_changed_while_a_person_is_asked_is_merged(root: Path) -> None:
    file = root / "a"
    file.write_bytes(b"one\ntwo\nthree\n")

    def ask(question: Any) -> bool:
        file.write_bytes(b"one\ntwo\nthree\nfour\n")
        return True

    async with Toolbox(root, settings={}, ask=ask) as box:
        await box.call("Read", {"file_path": "a"})
        result = await box.call("Edit", {"file_path": "a", "old_string": "one", "new_string": "ONE"})
    assert not result.is_error and result.data["merged"]
    assert file.read_bytes() == b"ONE\ntwo\nthree\nfour\n"


async def test_nothing_is_told_of_an_unknown_file_outside_before_permission(root: Path, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("x\n")
    async with Toolbox(root, settings={}, ask=lambda question: False) as box:
        texts = [
            (await box.call("Edit", {"file_path": str(tmp_path / name), "old_string": "x", "new_string": "y"})).text
            for name in ("secret", "absent")
        ]
    assert texts[0].replace("secret", "absent") == texts[1]


async def test_an_edit_can_be_undone(root: Path, edit: Edit, box: Toolbox) -> None:
    file = root / "a"
    file.write_bytes(b"x\r\n\xff")
    assert not (await edit(file, "x", "y")).is_error
    await box.undo()
    assert file.read_bytes() == b"x\r\n\xff"


async def test_an_edit_reads_and_writes_its_file_only(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, session_dir=tmp_path)
    assert edit_tool.effects({"file_path": "/a"}, workspace) == (Reads("/a"), Writes("/a"))
    assert edit_tool.needs_permission({}, edit_tool.effects({"file_path": "/a"}, workspace))


@pytest.mark.parametrize("encoding", ["utf-8", "cp1252", "utf-16"])
async def test_a_carriage_return_within_a_line_is_edited_as_it_is_shown(root: Path, edit: Edit, encoding: str) -> None:
    file = root / "log"
    file.write_bytes("größe\n10%\r50%\r100%\r\ndone\n".encode(encoding))
    result = await edit(file, "10%␍50%␍", "20%␍60%␍80%␍")
    assert not result.is_error, result.text
    assert "+20%␍60%␍80%␍100%" in result.text
    assert file.read_bytes() == "größe\n20%\r60%\r80%\r100%\r\ndone\n".encode(encoding)
