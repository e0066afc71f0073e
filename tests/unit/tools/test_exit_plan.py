from __future__ import annotations

from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.decision import Answer, Question
from wieldy.tools.exit_plan import exit_plan

pytestmark = pytest.mark.asyncio

PLAN = "# Plan\n1. change `a.py`\n2. run the tests"


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def test_an_approved_plan_restores_the_mode_from_before(tmp_path: Path) -> None:
    asked: list[str] = []

    def approve(question: Question) -> bool:
        asked.append(question.plan.tool.show_use(question.plan.input))
        return True

    async with Toolbox(tmp_path, settings={}, mode="acceptEdits", ask=approve) as box:
        box.policy.mode = "plan"
        assert (await box.call("Write", file_path="a", content="x")).is_error
        result = await box.call("ExitPlan", plan=PLAN)
        assert result.text == "The user approved the plan. The mode is `acceptEdits` now: start on it."
        assert box.policy.mode == "acceptEdits"
        assert not (await box.call("Write", file_path="a", content="x")).is_error
    assert asked == [f"Leave plan mode and start on this plan?\n\n{PLAN}"]


async def test_who_began_in_plan_mode_goes_on_in_default_mode(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="plan", ask=lambda question: True) as box:
        box.policy.mode = "plan"
        await box.call("ExitPlan", plan=PLAN)
        assert box.policy.mode == "default"


async def test_a_no_keeps_plan_mode_and_tells_the_model_why(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="plan", ask=lambda question: Answer(False, "smaller steps")) as box:
        result = await box.call("ExitPlan", plan=PLAN)
        assert result.is_error
        assert "smaller steps" in result.text
        assert box.policy.mode == "plan"


async def test_nobody_there_keeps_plan_mode(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="plan") as box:
        assert (await box.call("ExitPlan", plan=PLAN)).is_error
        assert box.policy.mode == "plan"


async def test_neither_a_rule_nor_a_yes_for_ever_approves_a_plan(tmp_path: Path) -> None:
    asked: list[tuple[str, ...]] = []

    def decline(question: Question) -> bool:
        asked.append(question.decision.suggestions)
        return False

    settings = {"permissions": {"allow": ["ExitPlan"]}}
    async with Toolbox(tmp_path, settings=settings, mode="plan", ask=decline) as box:
        assert (await box.call("ExitPlan", plan=PLAN)).is_error
    assert asked == [()]


async def test_outside_plan_mode_nobody_is_asked(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, ask=lambda question: pytest.fail("asked")) as box:
        assert "only for plan mode" in (await box.call("ExitPlan", plan=PLAN)).text


async def test_it_is_offered_in_plan_mode_only(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}) as box:
        (row,) = [row for row in await box.offer() if row.tool.name == "ExitPlan"]
        assert (row.offered, row.reason) == (False, "only for plan mode")
        box.policy.mode = "plan"
        assert next(row.offered for row in await box.offer() if row.tool.name == "ExitPlan")


async def test_an_empty_plan_is_no_plan(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="plan", ask=lambda question: pytest.fail("asked")) as box:
        assert "The plan is empty" in (await box.call("ExitPlan", plan=" \n")).text


async def test_a_rejection_is_one_line() -> None:
    assert exit_plan.show_rejection({"plan": PLAN}, "no") == "The plan was not approved: no"
