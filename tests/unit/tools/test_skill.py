from __future__ import annotations

from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.events import Event, Notice
from wieldy.tools.skill import skill

pytestmark = pytest.mark.asyncio


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


def make(folder: Path, head: str = "description: does things", body: str = "Do it.") -> None:
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\n{head}\n---\n{body}\n")


async def test_it_is_offered_only_where_there_are_skills(root: Path) -> None:
    async with Toolbox(root, settings={}) as box:
        (row,) = [row for row in await box.offer() if row.tool.name == "Skill"]
        assert (row.offered, row.reason) == (False, "no skills were found")
        make(root / ".claude/skills/deploy")
        assert next(row.offered for row in await box.offer() if row.tool.name == "Skill")
        assert (await skill.describe(box.workspace)).endswith("\n\n- deploy: does things")


@pytest.mark.parametrize("place", ["root/.claude/skills", ".claude/skills", "config/skills"])
async def test_a_skill_is_loaded_without_a_question_wherever_it_lies(root: Path, place: str) -> None:
    make(root.parent / place / "deploy", body="Push $ARGUMENTS.")
    async with Toolbox(root, settings={}, mode="plan") as box:
        result = await box.call("Skill", skill="deploy", args="main")
    assert not result.is_error, result.text
    assert result.text.endswith("Push main.")
    assert result.data["folder"] == str(root.parent / place / "deploy")


async def test_a_rule_can_forbid_a_skill_by_its_file(root: Path) -> None:
    make(root / ".claude/skills/deploy")
    async with Toolbox(root, settings={"permissions": {"deny": ["Read(.claude/**)"]}}) as box:
        assert (await box.call("Skill", skill="deploy")).is_error


async def test_unknown_broken_and_hidden_ones_are_told_apart(root: Path) -> None:
    make(root / ".claude/skills/good")
    make(root / ".claude/skills/broken", "description: 'open")
    make(root / ".claude/skills/mine", "description: x\ndisable-model-invocation: true")
    async with Toolbox(root, settings={}) as box:
        heard: list[Event] = []
        box.subscribe(heard.append)
        assert "There is no skill `nope`. The skills are:\n- good" in (await box.call("Skill", skill="nope")).text
        assert "It is broken: " in (await box.call("Skill", skill="broken")).text
        assert "Only the user may call" in (await box.call("Skill", skill="mine")).text
        assert (await box.call("Skill")).text == "- good: does things"
    assert sum(isinstance(event, Notice) for event in heard) == 1


async def test_where_there_are_none_no_empty_list_is_shown(root: Path) -> None:
    async with Toolbox(root, settings={}) as box:
        result = await box.call("Skill", skill="deploy")
    assert result.text.startswith("`Skill` is not available: no skills were found. Do without it")


async def test_only_the_file_that_was_judged_is_loaded(root: Path) -> None:
    make(root / ".claude/skills/deploy", body="theirs")
    async with Toolbox(root, settings={}) as box:
        assert (await box.call("Skill", skill="deploy")).text.endswith("theirs")
        make(root.parent / ".claude/skills/deploy", body="mine")
        assert "has just changed" in (await box.call("Skill", skill="deploy")).text
        assert (await box.call("Skill", skill="deploy")).text.endswith("mine")
