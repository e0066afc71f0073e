from __future__ import annotations

from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.agent.system_prompt import RequestPrefix
from wieldy.models.script import Script

pytestmark = pytest.mark.asyncio


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "root/.claude/skills/deploy").mkdir(parents=True)
    (tmp_path / "root/.claude/skills/deploy/SKILL.md").write_text("---\ndescription: how we deploy\n---\nPush.\n")
    return tmp_path / "root"


async def test_a_model_is_told_of_the_skills_before_it_begins(root: Path) -> None:
    async with Toolbox(root, settings={}) as box:
        outset = RequestPrefix(box)
        await outset.prepare(Script())
    (skills,) = [part for part in outset.system if part.startswith("# Skills")]
    assert skills.endswith("\n- deploy: how we deploy")
    assert "Skill" in {offer.name for offer in outset.offers}


async def test_where_the_tool_is_denied_nothing_is_said(root: Path) -> None:
    async with Toolbox(root, settings={"permissions": {"deny": ["Skill"]}}) as box:
        outset = RequestPrefix(box)
        await outset.prepare(Script())
    assert not [part for part in outset.system if "# Skills" in part]
