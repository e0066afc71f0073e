"""Files changed where nobody is asked: looked at and written in one go, with the same words and bytes as after a question."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.outcome import Refused, ToolResult

pytestmark = pytest.mark.asyncio
TEXT = b"one\ntwo \xe2\x80\x9cthree\xe2\x80\x9d\n\tfour\nfive\n"
NOTEBOOK = {
    "cells": [
        {"cell_type": "code", "id": "c1", "metadata": {}, "source": ["x = 1"], "outputs": [], "execution_count": 1}
    ],
    "metadata": {},
    "nbformat": 4,
    "nbformat_minor": 5,
}
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("Edit", {"file_path": "a", "old_string": "five", "new_string": "5"}),
    ("Edit", {"file_path": "a", "old_string": '"three"', "new_string": "3"}),
    ("Edit", {"file_path": "a", "old_string": "    four", "new_string": "    4"}),
    ("Edit", {"file_path": "a", "old_string": "o", "new_string": "0", "replace_all": True}),
    ("Edit", {"file_path": "a", "old_string": "o", "new_string": "0"}),
    ("Edit", {"file_path": "a", "old_string": "six", "new_string": "6"}),
    ("Edit", {"file_path": "a", "old_string": "one", "new_string": "one"}),
    ("Edit", {"file_path": "a", "old_string": "one", "new_string": "# ... rest of the code unchanged ..."}),
    ("Edit", {"file_path": "unread", "old_string": "one", "new_string": "1"}),
    ("Edit", {"file_path": "missing", "old_string": "one", "new_string": "1"}),
    ("Edit", {"file_path": "folder", "old_string": "one", "new_string": "1"}),
    ("Edit", {"file_path": "link", "old_string": "five", "new_string": "5"}),
    ("Edit", {"file_path": "twin", "old_string": "five", "new_string": "5"}),
    ("Edit", {"file_path": "moved", "old_string": "five", "new_string": "5"}),
    ("Edit", {"file_path": "clashing", "old_string": "five", "new_string": "5"}),
    ("Edit", {"file_path": "large", "old_string": "five", "new_string": "5"}),
    ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "one", "new_string": "1"}]}),
    ("MultiEdit", {"file_path": "a", "edits": [{"old_string": "nine", "new_string": "9"}]}),
    ("Write", {"file_path": "a", "content": "all new\n"}),
    ("Write", {"file_path": "a", "content": TEXT.decode()}),
    ("Write", {"file_path": "unread", "content": "all new\n"}),
    ("Write", {"file_path": "deep/er/new", "content": "new\n"}),
    ("Write", {"file_path": "a/b", "content": "new\n"}),
    ("NotebookEdit", {"notebook_path": "n.ipynb", "cell_id": "c1", "new_source": "x = 2"}),
    ("NotebookEdit", {"notebook_path": "n.ipynb", "cell_id": "c9", "new_source": "x = 2"}),
]
READ = ("a", "link", "twin", "moved", "clashing", "large", "n.ipynb")


def fill(root: Path) -> None:
    (root / "folder").mkdir(parents=True)
    for name in ("a", "unread", "moved", "clashing", "target", "one-of-two"):
        (root / name).write_bytes(TEXT)
    (root / "large").write_bytes(TEXT + b"x" * 300_000)
    (root / "link").symlink_to("target")
    os.link(root / "one-of-two", root / "twin")
    (root / "n.ipynb").write_text(json.dumps(NOTEBOOK))


def everything(root: Path) -> dict[str, object]:
    files = {str(path.relative_to(root)): path for path in root.rglob("*")}
    return {name: path.read_bytes() if path.is_file() else None for name, path in files.items()}


async def called(root: Path, tool: str, input: dict[str, Any], **options: Any) -> ToolResult:
    fill(root)
    async with Toolbox(root, settings={}, **options) as box:
        for name in READ:
            assert not (await box.call("Read", file_path=name)).is_error
        (root / "moved").write_bytes(b"zero\n" + TEXT)
        (root / "clashing").write_bytes(TEXT.replace(b"five", b"cinq"))
        return await box.call(tool, input)


@pytest.mark.parametrize(("tool", "input"), CALLS)
async def test_it_comes_to_the_same_as_where_somebody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tool: str, input: dict[str, Any]
):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    asked = await called(tmp_path / "asked", tool, input, ask=lambda question: True)
    unasked = await called(tmp_path / "unasked", tool, input, mode="bypassPermissions")
    assert unasked.text.replace("/unasked/", "/asked/") == asked.text
    assert type(unasked.outcome) is type(asked.outcome) and unasked.is_error == asked.is_error
    if isinstance(asked.outcome, Refused):
        assert isinstance(unasked.outcome, Refused) and unasked.outcome.stage == asked.outcome.stage == "check"
    assert everything(tmp_path / "unasked") == everything(tmp_path / "asked")
