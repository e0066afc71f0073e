"""What is the same for every request of a session until a tool is activated: the tools offered, and the prompt."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wieldy.agent.system_prompt import ROLE, instructions, surroundings, system_prompt
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.core.provider import Provider, ToolDefinition
from wieldy.skills.discovery import Skills
from wieldy.toolset.toolset import Activations


class RequestPrefix:
    """Made once, and again when the mode changes or tools come and go. Tools that are activated later come after those that
    were there, so that a cached prefix still holds."""

    def __init__(self, box: ToolboxProtocol, extra: str = "", role: str = ROLE) -> None:
        self._box = box
        self._extra = extra
        self._role = role
        self._window: int | None = None
        self._model = ""
        self._mode = ""
        self._changes = -1
        self._stale = False
        self._activated: Callable[[list[str]], None] = lambda names: None
        self.offers: tuple[ToolDefinition, ...] = ()
        self.breaks: tuple[int, ...] = ()
        self.prompt: tuple[str, ...] = ()

    async def prepare(
        self, provider: Provider, active: Iterable[str] = (), activated: Callable[[list[str]], None] | None = None
    ) -> None:
        """See which tools there are, and read what the project asks for; `activated` is told of tools that join later."""
        self._window, self._model, self._mode = provider.context_window, provider.model, ""
        activations = self._box.workspace.service(Activations)
        activations.restore(active)
        activations.on_change = self._joined
        self._activated = activated or self._activated
        await self.refresh()

    @property
    def fresh(self) -> bool:
        """Whether what is offered is still what is to be had."""
        return not self._stale and self._box.policy.mode == self._mode and self._box.catalog.changes == self._changes

    async def refresh(self) -> None:
        """Offer what was activated since the last request; with another mode or other tools, what is to be had now."""
        workspace, mode, changes = self._box.workspace, self._box.policy.mode, self._box.catalog.changes
        same = mode == self._mode and changes == self._changes
        self._stale = False
        offering = await self._box.offering(self._window)
        self.offers, self.breaks = offering.offers, offering.breaks
        if same:
            return
        self._mode, self._changes = mode, changes
        stable = system_prompt(offering.tools, mode=mode, extra=self._extra, role=self._role)
        here = surroundings(workspace.cwd, workspace.root, model=self._model)
        skills = workspace.service(Skills).briefing() if any(offer.name == "Skill" for offer in self.offers) else ""
        parts = (stable, offering.listing, skills, self._agents(), instructions(workspace.root, workspace.env), here)
        self.prompt = tuple(part for part in parts if part)

    def _agents(self) -> str:
        """What there is to know of agents that files describe, where agents can be sent at all."""
        if not any(offer.name == "Agent" for offer in self.offers):
            return ""
        from wieldy.subagents.definitions import AgentTypes

        return self._box.workspace.service(AgentTypes).briefing()

    def _joined(self, names: tuple[str, ...]) -> None:
        self._stale = True
        self._activated(list(names))
