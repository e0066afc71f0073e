"""A toolbox in a project of its own, and tools that show what an adapter does with results."""

from __future__ import annotations

import base64
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Image, Output, Text, Toolbox, tool

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@tool(read_only=True)
async def picture() -> Output:
    """Show a picture."""
    image = Image("image/png", base64.b64encode(PNG).decode())
    return Output((Text("here it is"), image), data={"width": 1})


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "a.txt").write_text("alpha\n")
    (folder / "secret.txt").write_text("hidden\n")
    return folder


@pytest.fixture
def settings() -> dict[str, Any]:
    return {"permissions": {"deny": ["Read(secret.txt)"]}}


@pytest_asyncio.fixture
async def box(project: Path, settings: dict[str, Any]) -> AsyncIterator[Toolbox]:
    async with Toolbox(project, settings=settings, tools=[picture]) as made:
        yield made
