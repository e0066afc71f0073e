"""Skill: instructions that are loaded when a task calls for them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, load_description
from wieldy.core.workspace import Workspace
from wieldy.skills.discovery import Skills

DESCRIPTION, PROMPT = load_description(__file__)


class SkillTool(FunctionTool):
    """Its description names the skills there are."""

    async def describe(self, workspace: Workspace, input: Mapping[str, Any] | None = None) -> str:
        """The description, then the skills."""
        skills = await _refreshed(workspace)
        return f"{self.description}\n\n{skills.listing()}".strip()


async def _refreshed(workspace: Workspace) -> Skills:
    skills = workspace.service(Skills)
    await skills.refreshed()
    skills.report()
    return skills


async def _enabled(workspace: Workspace) -> bool | str:
    skills = await _refreshed(workspace)
    return any(not skill.hidden for skill in skills.found.values()) or "no skills were found"


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    skills = workspace.service(Skills)
    name = input.get("skill", "")
    skill = skills.found.get(name) or skills.refresh().get(name) if name else None
    return (Reads(skill.path),) if skill else tuple(map(Reads, skills.folders))


async def _load(
    ctx: ToolContext, skill: Annotated[str, "Name"] = "", args: Annotated[str, "Arguments, if it takes any"] = ""
) -> Output:
    """Load a skill, or list them."""
    skills = await _refreshed(ctx.workspace)
    found = skills.found.get(skill)
    if not skill:
        return Output(skills.listing() or "There are no skills.", {"skills": list(skills.found)})
    if found is None:
        listing = skills.listing()
        others = f" The skills are:\n{listing}" if listing else " There are none at all. Go on without it."
        raise ToolFailure(f"There is no skill `{skill}`.{_why_not(skill, skills)}{others}")
    if found.hidden:
        raise ToolFailure(f"Only the user may call for the skill `{skill}`. Go on without it.")
    if ctx.resolved_paths.get(found.path) != found.path:  # another file than the one that was judged
        raise ToolFailure(f"The skill `{skill}` has just changed. Send this again to load it as it is now.")
    from wieldy.skills.skill import render_skill

    text = await in_thread(render_skill, found, args)
    return Output(text, {"skill": found.name, "folder": found.folder, "allowedTools": list(found.tools)})


def _why_not(name: str, skills: Skills) -> str:
    broken = next((problem for problem in skills.problems if f"/{name}/" in problem), None)
    return f" It is broken: {broken}." if broken else ""


skill = SkillTool(
    _load,
    {
        "name": "Skill",
        "description": DESCRIPTION,
        "prompt": PROMPT,
        "read_only": True,
        "effects": _effects,
        "enabled": _enabled,
        "aliases": {"name": "skill", "command": "skill", "arguments": "args"},
        "max_result_chars": 100_000,
    },
)
