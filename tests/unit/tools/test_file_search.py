from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.effects import Reads, Writes
from wieldy.core.events import Event, ToolProgress
from wieldy.core.outcome import ToolResult
from wieldy.engine.workspace_services import open_workspace
from wieldy.tools.file_search import file_search

pytestmark = pytest.mark.asyncio


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    folder = tmp_path / "root"
    (folder / "sub").mkdir(parents=True)
    (folder / "a.py").write_bytes(b"import old\r\nold.run()\r\n")
    (folder / "sub" / "b.py").write_bytes(b"x = old  # caf\xe9\n")
    (folder / "c.txt").write_bytes(b"old\n")
    (folder / "image.bin").write_bytes(b"\x7fELF\x00old\x00")
    return folder


@pytest_asyncio.fixture
async def box(root: Path) -> AsyncIterator[Toolbox]:
    async with Toolbox(root, settings={}, mode="bypassPermissions") as toolbox:
        yield toolbox


def contents(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in sorted(root.rglob("*")) if path.is_file()}


async def search(box: Toolbox, pattern: str = "old", **fields: Any) -> ToolResult:
    return await box.call("FileSearch", {"pattern": pattern, **fields})


async def test_matches_are_shown_with_file_and_line(box: Toolbox) -> None:
    result = await search(box, file_glob="*.py")
    assert result.text.split("\n") == [
        "a.py:1: import old",
        "a.py:2: old.run()",
        "sub/b.py:1: x = old  # café",
        "[3 matches in 2 files]",
    ]


async def test_a_preview_shows_old_and_new_and_writes_nothing(root: Path, box: Toolbox) -> None:
    before = contents(root)
    result = await search(box, replace_with="new", file_glob="a.py")
    assert "a.py:2\n- old.run()\n+ new.run()" in result.text
    assert "nothing was written, send preview_only=false to apply" in result.text
    assert contents(root) == before and not result.data["applied"]


async def test_applying_changes_all_files_and_one_undo_takes_it_back(root: Path, box: Toolbox) -> None:
    before = contents(root)
    result = await search(box, replace_with="new", preview_only=False)
    assert not result.is_error and "[Replaced 4 matches in 3 files; one undo takes all of it back]" in result.text
    assert contents(root) == before | {
        "a.py": b"import new\r\nnew.run()\r\n",
        "sub/b.py": b"x = new  # caf\xe9\n",
        "c.txt": b"new\n",
    }
    await box.undo()
    assert contents(root) == before


@pytest.mark.parametrize(
    ("template", "after"),
    [
        (r"\1.\2", b"b.a\n"),
        (r"\g<2>", b"a\n"),
        ("$1 $&", b"$1 $&\n"),
        (r"\\1", b"\\1\n"),
        (r"x\n", b"x\n\n"),
    ],
)
async def test_groups_are_python_s_and_dollars_are_text(root: Path, box: Toolbox, template: str, after: bytes) -> None:
    (root / "t").write_bytes(b"a.b\n")
    pattern = r"(?P<second>a)\.(b)" if template == r"\g<2>" else r"(a)\.(b)"
    wanted = {r"\1.\2": r"\2.\1", r"\g<2>": r"\g<second>"}.get(template, template)
    result = await search(box, pattern, path="t", replace_with=wanted, preview_only=False)
    assert not result.is_error, result.text
    assert (root / "t").read_bytes() == after


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"pattern": "(old"}, "no valid regular expression: missing )"),
        ({"pattern": "old", "replace_with": r"\2"}, "invalid group reference 2"),
        ({"pattern": "old", "replace_with": r"\q"}, "bad escape"),
        ({"pattern": "old", "file_glob": "*.{py"}, "glob cannot be read"),
        ({"pattern": "old", "path": "nowhere"}, "does not exist"),
    ],
)
async def test_what_cannot_be_read_is_refused_first(box: Toolbox, fields: dict[str, Any], words: str) -> None:
    result = await box.call("FileSearch", fields)
    assert result.is_error and words in result.text


async def test_nothing_found_is_no_error(box: Toolbox) -> None:
    result = await search(box, "zebra", replace_with="x", preview_only=False)
    assert (result.is_error, result.text) == (False, "No matches found")


async def test_the_pattern_sees_one_line_unless_multiline(root: Path, box: Toolbox) -> None:
    single = await search(box, r"import\s+old\s+old", path="a.py")
    assert single.text == "No matches found"
    result = await search(
        box,
        r"import old\nold",
        path="a.py",
        replace_with="from old import old\nold",
        multiline=True,
        preview_only=False,
    )
    assert not result.is_error, result.text
    assert (root / "a.py").read_bytes() == b"from old import old\r\nold.run()\r\n"


async def test_ignored_and_excluded_files_are_left_out(root: Path, box: Toolbox) -> None:
    (root / ".gitignore").write_text("sub/\n")
    (root / ".git").mkdir()
    (root / ".git" / "old").write_text("old")
    result = await search(box, exclude="*.txt")
    assert [file["filePath"] for file in result.data["files"]] == [str(root / "a.py")]


async def test_more_files_than_wanted_are_cut_in_a_preview_and_refused_when_applied(root: Path, box: Toolbox) -> None:
    before = contents(root)
    preview = await search(box, replace_with="new", max_files=2)
    assert preview.data["truncated"] and "raise max_files" in preview.text
    applied = await search(box, replace_with="new", max_files=2, preview_only=False)
    assert applied.is_error and "all or none" in applied.text and contents(root) == before


async def test_a_character_one_file_cannot_hold_changes_no_file(root: Path, box: Toolbox) -> None:
    before = contents(root)
    result = await search(box, replace_with="あ", preview_only=False)
    assert result.is_error and "sub/b.py" in result.text and "U+3042" in result.text
    assert contents(root) == before


async def test_protected_files_are_not_changed_with_their_folder(root: Path, box: Toolbox) -> None:
    (root / ".env").write_text("KEY=old\n")
    before = contents(root)
    result = await search(box, replace_with="new", preview_only=False)
    assert result.is_error and ".env" in result.text and "exclude" in result.text
    assert contents(root) == before
    assert not (await search(box, replace_with="new", preview_only=False, exclude=".env")).is_error


async def test_bytes_that_are_no_text_are_put_back_as_they_were(root: Path, box: Toolbox) -> None:
    (root / "odd").write_bytes("日本語テスト".encode() * 3 + b"\xff foo\n")
    result = await search(box, r"(.) foo", path="odd", replace_with=r"<\1> bar", preview_only=False)
    assert not result.is_error, result.text
    assert (root / "odd").read_bytes() == "日本語テスト".encode() * 3 + b"<\xff> bar\n"


async def test_a_file_of_several_names_is_changed_once(root: Path, box: Toolbox) -> None:
    os.link(root / "c.txt", root / "d.txt")
    before = contents(root)
    result = await search(box, replace_with="new", preview_only=False)
    assert not result.is_error, result.text
    assert "d.txt is another name of" in result.text and "c.txt (hard link)" in result.text
    assert (root / "c.txt").samefile(root / "d.txt") and b"old" not in (root / "d.txt").read_bytes()
    await box.undo()
    assert contents(root) == before


async def test_a_pattern_that_runs_wild_is_stopped(root: Path) -> None:
    (root / "long").write_text("a" * 40 + "b\n")
    settings = {"search": {"seconds": 1.0}}
    async with Toolbox(root, settings=settings, mode="bypassPermissions") as box:
        result = await search(box, r"(a+)+$", path="long")
    assert result.is_error and "took too long" in result.text


async def test_a_read_file_stays_known_after_a_replacement(root: Path, box: Toolbox) -> None:
    await box.call("Read", {"file_path": "c.txt"})
    await search(box, replace_with="new", preview_only=False)
    assert not (await box.call("Write", {"file_path": "c.txt", "content": "x\n"})).is_error
    unread = await box.call("Edit", {"file_path": "a.py", "old_string": "import new", "new_string": "x"})
    assert unread.is_error and "must be read first" in unread.text


async def test_progress_is_told(root: Path, box: Toolbox) -> None:
    heard: list[Event] = []
    box.subscribe(heard.append)
    await search(box)
    await asyncio.sleep(0)
    told = [event.text for event in heard if isinstance(event, ToolProgress)]
    assert told and told[-1].endswith("files searched, 3 with matches")


async def test_a_fifo_named_as_path_does_not_hang(root: Path, box: Toolbox) -> None:
    os.mkfifo(root / "pipe")
    assert (await search(box, path="pipe")).text == "No matches found"


async def test_only_applying_writes_and_asks(tmp_path: Path) -> None:
    workspace = open_workspace(tmp_path, session_dir=tmp_path)
    preview = {"pattern": "x", "replace_with": "y", "path": "/a"}
    assert file_search.effects(preview, workspace) == (Reads("/a"),)
    assert not file_search.needs_permission(preview, ())
    apply = {**preview, "preview_only": False}
    assert file_search.effects(apply, workspace) == (Reads("/a"), Writes("/a"))
    assert file_search.needs_permission(apply, ())


@pytest.mark.parametrize("pattern", ["needle", "needle|needle", "(need)le+"])
async def test_files_are_found_in_every_encoding_and_only_where_rules_allow(
    root: Path, box: Toolbox, pattern: str
) -> None:
    """With a pattern that ripgrep can look for first, and with ones that it cannot."""
    text = "größe needle größe\n" * 3
    for encoding in ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "latin-1", "cp1252"):
        (root / f"{encoding}.txt").write_bytes(text.encode(encoding))
    (root / "cyrillic.txt").write_bytes("Привет needle, мир и все люди в нём\n".encode("koi8-r") * 5)
    (root / ".gitignore").write_text("hidden\n")
    (root / "hidden").write_text("needle\n")
    (root / "sub" / "deep").mkdir()
    (root / "sub" / "deep" / "out.txt").write_text("needle\n")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("needle\n")
    (root / ".env").write_text("needle\n")
    (root / "line\nbreak").write_text("needle\n")
    files = {file["filePath"] for file in (await search(box, pattern, exclude="sub/deep")).data["files"]}
    named = {os.path.relpath(path, root) for path in files}
    expected = {"utf-8", "utf-8-sig", "utf-16", "latin-1", "cp1252"}
    assert {f"{name}.txt" for name in expected} | {".env", "cyrillic.txt"} <= named
    assert not named & {"hidden", "sub/deep/out.txt", ".git/config"}
    searched = {file["filePath"] for file in (await search(box, f"{pattern}|\\bneedle")).data["files"]}
    assert files | {str(root / "sub" / "deep" / "out.txt")} == searched, "looking with ripgrep first changes nothing"
