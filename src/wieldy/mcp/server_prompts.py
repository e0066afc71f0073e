"""The project's and the user's skills as prompts: what a person calls for by name, told to their model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from wieldy.core.threads import in_thread

if TYPE_CHECKING:
    import mcp_types as types

    from wieldy.skills.find import Skills
    from wieldy.toolbox import Toolbox

ARGUMENTS = "arguments"


class NoSuchPrompt(LookupError):
    """There is no skill of this name that may be told."""


class Prompts:
    """The skills of one toolbox, looked for anew with every request."""

    def __init__(self, box: Toolbox) -> None:
        self._box = box

    async def listed(self) -> list[types.Prompt]:
        """Every skill; also those that no model may load by itself, as here a person does."""
        import mcp_types as types

        given = types.PromptArgument(name=ARGUMENTS, description="What the skill is to be used on", required=False)
        skills = await self._skills()
        return [
            types.Prompt(name=skill.name, description=skill.description, arguments=[given])
            for skill in skills.found.values()
        ]

    async def told(self, name: str, arguments: Mapping[str, str]) -> types.GetPromptResult:
        """A skill as a message to the model, whatever its arguments are called. Raises `NoSuchPrompt`, which says what to do."""
        import mcp_types as types

        from wieldy.skills.told import told

        skills = await self._skills()
        skill = skills.found.get(name)
        if skill is None:
            raise NoSuchPrompt(f"there is no prompt `{name[:100]}`; prompts/list names them")
        decision = await self._box.explain("Read", file_path=skill.path)
        if decision.behavior == "deny":
            raise NoSuchPrompt(f"the prompt `{name}` may not be read: {decision.why}")
        text = types.TextContent(text=await in_thread(told, skill, " ".join(filter(None, arguments.values()))))
        return types.GetPromptResult(
            description=skill.description, messages=[types.PromptMessage(role="user", content=text)]
        )

    async def _skills(self) -> Skills:
        from wieldy.skills.find import Skills

        skills = self._box.workspace.resident(Skills)
        await in_thread(skills.refresh)
        skills.report()
        return skills
