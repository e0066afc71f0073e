"""Read, Grep and rg number the lines of a file alike."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from wieldy import Toolbox
from wieldy.files.search.ripgrep import find_ripgrep

PIECES = st.sampled_from(["a", "bc", "␍", "é", "\n", "\n", "\r\n", "\r", "\f", "\x0b", "\x85", "\u2028"])


@pytest.mark.asyncio
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(PIECES, max_size=30).map("".join).filter(lambda text: "\n" in text))
async def test_lines_have_the_numbers_and_texts_that_rg_gives_them(tmp_path: Path, text: str) -> None:
    (tmp_path / "f").write_bytes(text.encode())
    program = find_ripgrep().path
    done = subprocess.run(
        [program, "--no-config", "-n", "--crlf", "^", "f"], cwd=tmp_path, capture_output=True, check=True, timeout=60
    )
    shown = [line.removesuffix("\r").replace("\r", "␍") for line in done.stdout.decode().removesuffix("\n").split("\n")]
    async with Toolbox(tmp_path, settings={}) as box:
        read = await box.call("Read", {"file_path": "f"})
        found = await box.call("Grep", {"pattern": "^", "path": "f", "output_mode": "content", "head_limit": 0})
    numbered = [f"{number}:{line}" for number, line in enumerate(read.data["file"]["content"].split("\n"), 1)]
    assert numbered == shown
    assert found.data["content"].split("\n") == [f"f:{line}" for line in shown]
