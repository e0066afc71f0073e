"""A long text in the person's pager."""

from __future__ import annotations

from pathlib import Path

import pytest

from wieldy.faces.terminal.desktop import show_in_pager


@pytest.mark.parametrize("pager", ["less -X", "", "no-such-program -X", "less 'never closed"])
@pytest.mark.asyncio
async def test_the_text_reaches_a_pager_whatever_the_variable_says(tmp_path: Path, monkeypatch, pager: str):
    less = tmp_path / "less"
    less.write_text(f"#!/bin/sh\n/bin/cat > {tmp_path}/shown\n")
    less.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("PAGER", pager)
    await show_in_pager("one\ntwo\n")
    assert (tmp_path / "shown").read_text() == "one\ntwo\n"
