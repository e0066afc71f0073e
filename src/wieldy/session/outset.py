"""What is the same for every request of a session: the tools offered, in blocks a provider can cache, and the prompt."""

from __future__ import annotations

from collections.abc import Iterable

from wieldy.core.provider import ToolOffer
from wieldy.core.tool import Tool
from wieldy.session.prompt import instructions, surroundings, system_prompt
from wieldy.toolbox import Toolbox


class Outset:
    """Made once. Tools that are activated later come after those that were there, so that a cached prefix still holds."""

    def __init__(self, box: Toolbox, extra: str = "") -> None:
        self._box = box
        self._extra = extra
        self.offers: tuple[ToolOffer, ...] = ()
        self.breaks: tuple[int, ...] = ()
        self.prompt: tuple[str, ...] = ()

    async def prepare(self, model: str, activated: Iterable[str] = ()) -> None:
        """See which tools there are, and read what the project asks for."""
        offered = [entry.tool for entry in await self._box.offer() if entry.offered]
        known = [tool for tool in offered if not tool.deferred]
        self.offers = tuple(map(_offer, known))
        self.breaks = (len(known),) if known else ()
        workspace, mode = self._box.workspace, self._box.policy.mode
        stable = system_prompt(known, mode=mode, extra=self._extra)
        here = surroundings(workspace.cwd, workspace.root, model=model)
        self.prompt = tuple(part for part in (stable, instructions(workspace.root), here) if part)
        self.activate(activated)

    def activate(self, names: Iterable[str]) -> list[str]:
        """Offer deferred tools from now on; returns those that were not offered before."""
        there = {offer.name for offer in self.offers}
        found = [self._box.catalog.find(name) for name in dict.fromkeys(names) if name not in there]
        new = [tool for tool in found if tool is not None and tool.deferred]
        if new:
            self.offers += tuple(map(_offer, new))
            self.breaks = (*self.breaks[:1], len(self.offers))
        return [tool.name for tool in new]


def _offer(tool: Tool) -> ToolOffer:
    return ToolOffer(tool.name, tool.description, tool.schema)
