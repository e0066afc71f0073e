"""What a model reads about a tool."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from wieldy import RateLimited, Tool, Toolbox

pytestmark = pytest.mark.asyncio


class Deploy(Tool):
    """A tool that describes itself by the state of its workspace."""

    name = "deploy"
    description = "Deploys."
    input_schema: Mapping[str, Any] = {"type": "object", "properties": {}}
    read_only = True
    targets = "staging"

    async def describe(self, workspace: Any, input: Mapping[str, Any] | None = None) -> str:
        if self.targets == "raise":
            raise ValueError("no targets")
        if self.targets == "exit":
            raise SystemExit(1)
        if self.targets == "blank":
            return " "
        await asyncio.sleep(0)
        return f"Deploys to {self.targets}."


async def offered(box: Toolbox) -> str:
    return {spec.name: spec.description for spec in (await box.offering()).definitions}["deploy"]


@pytest.mark.parametrize("wrapped", [False, True])
async def test_a_model_is_sent_what_the_tool_says_about_itself_now(tmp_path, monkeypatch, wrapped):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    deploy = Deploy()
    async with Toolbox(tmp_path, settings={}, tools=[RateLimited(deploy, 5, 60) if wrapped else deploy]) as box:
        assert await offered(box) == "Deploys to staging."
        first = (await box.offering()).definitions
        assert all(a is b for a, b in zip(first, (await box.offering()).definitions, strict=True))
        deploy.targets = "production"
        assert await offered(box) == "Deploys to production."


@pytest.mark.parametrize("state", ["raise", "exit", "blank"])
async def test_a_tool_that_cannot_describe_itself_is_sent_with_its_fixed_description(tmp_path, monkeypatch, state):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    deploy = Deploy()
    deploy.targets = state
    async with Toolbox(tmp_path, settings={}, tools=[deploy]) as box:
        assert await offered(box) == "Deploys."
