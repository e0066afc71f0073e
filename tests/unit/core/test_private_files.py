"""What wieldy keeps of results and output is readable by its owner only, whatever the umask."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from wieldy.agent.compaction import KEEP_MESSAGES, SHORT_RESULT_CHARS, save_old_results
from wieldy.core.messages import Message
from wieldy.engine.results import Spill
from wieldy.shell.running.output import SpillFile
from wieldy.web.page import _save_pdf


@pytest.fixture(autouse=True)
def open_umask() -> Iterator[None]:
    before = os.umask(0)
    yield
    os.umask(before)


def modes(top: Path) -> dict[str, int]:
    return {path.relative_to(top).as_posix(): path.stat().st_mode & 0o777 for path in top.rglob("*")}


def test_results_output_and_pages_are_private_with_all_their_new_folders(tmp_path):
    folder = tmp_path / "sessions" / "one" / "tool-results"
    Spill(folder).save("call", "x" * 10_000, 100)
    output = SpillFile(folder / "bash.txt")
    output.write(b"x")
    output.finish()
    _save_pdf(folder, b"%PDF")
    result = {"type": "tool_result", "tool_use_id": "old", "content": "x" * (SHORT_RESULT_CHARS + 1)}
    history = [Message("user", (result,)), *[Message("user", ())] * KEEP_MESSAGES]
    save_old_results(history, folder)
    found = modes(tmp_path)
    assert len(found) == 7
    assert {name: mode for name, mode in found.items() if mode != (0o600 if "." in name else 0o700)} == {}
