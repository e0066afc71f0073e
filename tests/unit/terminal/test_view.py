"""What a person sees of a call."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wieldy import Toolbox, tool
from wieldy.console import render
from wieldy.core.tool_decorator import FunctionTool
from wieldy.terminal.view import View


class Deploying(FunctionTool):
    def show_rejection(self, input: Mapping[str, Any], why: str) -> str:
        return f"{input['target']} stays as it is: {why}"


@tool(cls=Deploying)
async def deploy(target: str) -> str:
    """Deploy."""
    return ""


@tool
async def release(version: str) -> str:
    """Release."""
    return ""


async def shown(root: Path, name: str, **fields: Any) -> str:
    async with Toolbox(root, settings={"permissions": {"deny": ["deploy", "release"]}}, tools=[deploy, release]) as box:
        view = View(box.catalog.find)
        async with box.stream() as events:
            await box.call(name, **fields)
            async for event in events:
                if event.kind == "tool.failed":
                    return render(*view.show(event), color=False)
    raise AssertionError("the call was not refused")


def test_a_refused_call_is_shown_as_its_tool_says(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    text = asyncio.run(shown(tmp_path, "deploy", target="production"))
    assert text.startswith("● production stays as it is: not permitted: rule `deploy`")


def test_a_refused_call_names_its_input_and_the_whole_reason(tmp_path, monkeypatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    text = asyncio.run(shown(tmp_path, "release", version="2.0"))
    assert text.startswith("● release(version=2.0) was not run: not permitted: rule `release`")
    assert "tell the user" not in text
