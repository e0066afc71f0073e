"""A tool's own check comes before hooks and questions: they see only calls that can be carried out."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox, tool
from wieldy.core.decision import Advice
from wieldy.core.errors import Refusal
from wieldy.core.events import PermissionDecided, ToolStarted
from wieldy.core.outcome import Refused
from wieldy.core.tool import Tool, ToolContext
from wieldy.policy.hooks.config import python_hook

pytestmark = pytest.mark.asyncio


def checked_tool(seen: list[str], *, rechecks_on_run: bool = False) -> Tool:
    async def check(input: Mapping[str, Any], ctx: ToolContext) -> None:
        seen.append("checked")
        if input["n"] < 0:
            raise Refusal("check", "too little")

    @tool(name="Take", check=check, rechecks_on_run=rechecks_on_run)
    async def take(n: int) -> str:
        """Take."""
        seen.append("ran")
        if n < 0:
            raise Refusal("check", "too little")
        return "taken"

    return take


class Adviser:
    def __init__(self, wants: bool) -> None:
        self._wants = wants

    def wants(self, plan: Any) -> bool:
        return self._wants

    async def advise(self, plan: Any) -> Advice:
        return Advice()


async def test_a_check_is_made_before_every_run(make_box):
    seen: list[str] = []
    async with make_box(checked_tool(seen)) as box:
        assert (await box.call("Take", n=1)).text == "taken"
        result = await box.call("Take", n=-1)
    assert seen == ["checked", "ran", "checked"]
    assert result.outcome == Refused("check", "too little")


async def test_whoever_is_asked_is_asked_about_what_can_be_done(make_box):
    seen: list[str] = []

    def answer(question: Any) -> bool:
        seen.append("asked")
        return True

    async with make_box(checked_tool(seen), verdicts={"Take": "ask"}, ask=answer) as box:
        await box.call("Take", n=1)
        result = await box.call("Take", n=-1)
    assert seen == ["checked", "asked", "ran", "checked"]
    assert result.outcome == Refused("check", "too little")


async def test_what_is_denied_is_denied_whatever_the_check_says(make_box):
    async with make_box(checked_tool([]), verdicts={"Take": "deny"}) as box:
        results = [await box.call("Take", n=n) for n in (1, -1)]
    assert [result.outcome.stage for result in results] == ["permission", "permission"]
    assert results[0].text == results[1].text


async def test_a_call_that_nobody_is_asked_about_is_not_checked_before_a_run_that_checks_it(make_box):
    seen: list[str] = []
    async with make_box(checked_tool(seen, rechecks_on_run=True)) as box:
        await box.call("Take", n=1)
        result = await box.call("Take", n=-1)
    assert seen == ["ran", "ran"]
    assert result.outcome == Refused("check", "too little")


@pytest.mark.parametrize("given", [{"verdicts": {"Take": "ask"}}, {"advisers": [Adviser(True)]}])
async def test_a_question_and_a_hook_come_after_the_check_of_a_run_that_checks_again(make_box, given: dict[str, Any]):
    seen: list[str] = []
    async with make_box(checked_tool(seen, rechecks_on_run=True), ask=lambda question: True, **given) as box:
        await box.call("Take", n=1)
        result = await box.call("Take", n=-1)
    assert seen == ["checked", "ran", "checked"]
    assert result.outcome == Refused("check", "too little")


@pytest.mark.parametrize("wants", [True, False])
async def test_advisers_hear_of_what_can_be_done(make_box, wants: bool):
    seen: list[str] = []
    async with make_box(checked_tool(seen), advisers=[Adviser(wants)]) as box:
        await box.call("Take", n=1)
    assert seen == ["checked", "ran"]


async def test_what_was_refused_by_a_check_is_not_told_to_hooks_as_a_failure(make_box):
    seen: list[str] = []
    hook = python_hook("PostToolUseFailure", lambda payload: seen.append("failed"))
    async with make_box(checked_tool(seen), hooks=[hook]) as box:
        await box.call("Take", n=-1)
    assert seen == ["checked"]


async def test_whoever_listens_hears_that_it_was_decided_before_it_began(make_box):
    heard: list[type] = []
    async with make_box(checked_tool([])) as box:
        box.events.subscribe(lambda event: heard.append(type(event)))
        await box.call("Take", n=1)
    # Closing delivers what is waiting.
    assert heard.index(PermissionDecided) < heard.index(ToolStarted)


async def test_a_rate_is_a_rate_whoever_attends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    settings = {"tools": {"Write": {"rateLimit": {"calls": 2, "seconds": 60}}}}
    async with Toolbox(tmp_path, settings=settings, mode="bypassPermissions") as box:
        results = [await box.call("Write", file_path=f"{n}", content="x") for n in range(3)]
    assert [result.is_error for result in results] == [False, False, True]
    assert "2 times in 60 s" in results[2].text
