"""Builds the cacheable prefix of a request: the system prompt and the tools offered."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from wieldy.agent.system_prompt import ROLE, environment, instructions, system_prompt
from wieldy.agent.toolbox_protocol import ToolboxProtocol
from wieldy.core.provider import Provider, ToolSpec
from wieldy.skills.skill import Skills
from wieldy.subagents.definitions import AgentTypes
from wieldy.toolset.toolset import Activations


class RequestPrefix:
    """The prefix of one session's requests, rebuilt when the mode or the catalog of tools changes.

    Tools that are activated later are appended, so that a provider's cache of the prefix stays valid.
    """

    def __init__(self, box: ToolboxProtocol, extra: str = "", role: str = ROLE) -> None:
        self._box = box
        self._extra = extra
        self._role = role
        self._context_window: int | None = None
        self._model = ""
        self._mode = ""
        self._catalog_changes = -1
        self._has_new_activations = False
        self._on_activated: Callable[[list[str]], None] = lambda names: None
        self.system: tuple[str, ...] = ()
        self.offers: tuple[ToolSpec, ...] = ()
        self.breaks: tuple[int, ...] = ()

    async def prepare(
        self, provider: Provider, active: Iterable[str] = (), on_activated: Callable[[list[str]], None] | None = None
    ) -> None:
        """Build the prefix for a provider; `on_activated` is called with the names of tools that are activated later."""
        self._context_window, self._model, self._mode = provider.context_window, provider.model, ""
        activations = self._box.workspace.service(Activations)
        activations.restore(active)
        activations.on_change = self._activated
        self._on_activated = on_activated or self._on_activated
        await self.refresh()

    @property
    def is_current(self) -> bool:
        """Whether nothing has changed since the prefix was built."""
        box = self._box
        unchanged = box.policy.mode == self._mode and box.catalog.changes == self._catalog_changes
        return unchanged and not self._has_new_activations

    async def refresh(self) -> None:
        """Offer the tools that are available now; rebuild the system prompt if the mode or the catalog has changed."""
        workspace, mode, changes = self._box.workspace, self._box.policy.mode, self._box.catalog.changes
        unchanged = mode == self._mode and changes == self._catalog_changes
        self._has_new_activations = False
        offering = await self._box.offering(self._context_window)
        self.offers, self.breaks = offering.definitions, offering.breaks
        if unchanged:
            return
        self._mode, self._catalog_changes = mode, changes
        names = {offer.name for offer in self.offers}
        parts = (
            system_prompt(offering.tools, mode=mode, extra=self._extra, role=self._role),
            offering.listing,
            workspace.service(Skills).prompt_section() if "Skill" in names else "",
            workspace.service(AgentTypes).prompt_section() if "Agent" in names else "",
            instructions(workspace.root, workspace.env),
            environment(workspace.cwd, workspace.root, model=self._model),
        )
        self.system = tuple(part for part in parts if part)

    def _activated(self, names: tuple[str, ...]) -> None:
        self._has_new_activations = True
        self._on_activated(list(names))
