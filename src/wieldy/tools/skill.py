"""Skill: loads instructions for a task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from wieldy.core.effects import Effects, Reads
from wieldy.core.errors import ToolFailure
from wieldy.core.threads import in_thread
from wieldy.core.tool import Output, ToolContext
from wieldy.core.tool_decorator import FunctionTool, tool
from wieldy.core.workspace import Workspace
from wieldy.tools.skills import Skills


class SkillTool(FunctionTool):
    async def describe(self, workspace: Workspace, input: Mapping[str, Any] | None = None) -> str:
        """The description with a list of the skills."""
        skills = await _refresh(workspace)
        return f"{self.description}\n\n{skills.listing()}".strip()


async def _refresh(workspace: Workspace) -> Skills:
    skills = workspace.services.skills
    await skills.refresh_in_thread()
    skills.report_problems()
    return skills


async def _enabled(workspace: Workspace) -> bool | str:
    skills = await _refresh(workspace)
    return any(not skill.hidden for skill in skills.definitions.values()) or "no skills were found"


def _effects(input: Mapping[str, Any], workspace: Workspace) -> Effects:
    skills = workspace.services.skills
    name = input.get("skill", "")
    skill = skills.definitions.get(name) or skills.refresh().get(name) if name else None
    return (Reads(skill.path),) if skill else tuple(Reads(str(folder)) for folder in skills.folders)


@tool(
    cls=SkillTool,
    name="Skill",
    described_in=__file__,
    rules="choice",
    main_field="skill",
    level="confirm",
    fails={"skill": "nowhere"},
    read_only=True,
    effects=_effects,
    enabled=_enabled,
    aliases={"name": "skill", "command": "skill", "arguments": "args"},
    max_result_chars=100_000,
)
async def skill(
    ctx: ToolContext, skill: Annotated[str, "Name"] = "", args: Annotated[str, "Arguments, if it takes any"] = ""
) -> Output:
    skills = await _refresh(ctx.workspace)
    definition = skills.definitions.get(skill)
    if not skill:
        return Output(skills.listing() or "There are no skills.", {"skills": list(skills.definitions)})
    if definition is None:
        listing = skills.listing()
        next_step = f"The skills are:\n{listing}" if listing else "There are none at all. Continue without it."
        raise ToolFailure(f"There is no skill `{skill}`.{_broken_note(skill, skills)}", next_step)
    if definition.hidden:
        raise ToolFailure(
            f"Only the user may call for the skill `{skill}`.",
            "Continue without it.",
            person=f"only you may call for the skill `{skill}`",
        )
    if ctx.resolved_paths.get(definition.path) != definition.path:  # not the file that was authorized
        raise ToolFailure(f"The skill `{skill}` has just changed.", "Send this again to load it as it is now.")
    from wieldy.tools.skills import render_skill

    text = await in_thread(render_skill, definition, args)
    return Output(text, {"skill": definition.name, "folder": definition.folder, "allowedTools": list(definition.tools)})


def _broken_note(name: str, skills: Skills) -> str:
    broken = next((problem for problem in skills.problems if f"/{name}/" in problem), None)
    return f" It is broken: {broken}." if broken else ""
