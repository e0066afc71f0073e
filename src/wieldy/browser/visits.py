"""Which pages the browser may show: the rules and modes that hold for fetching, asked again for every page it wants to go to."""

from __future__ import annotations

from wieldy.core.call import PlannedCall, ToolCall
from wieldy.core.decision import Decision, Judge
from wieldy.core.effect import Fetches
from wieldy.core.tool import Tool
from wieldy.web.address import WebAddress


class _Visit(Tool):
    """What is judged when a page leads to another: the same as a call of BrowserNavigate."""

    name = "BrowserNavigate"
    description = "Go to a page."


class Visits:
    """What was permitted so far, and who judges what was not."""

    def __init__(self) -> None:
        self.judge: Judge | None = None
        self._permitted: set[str] = set()
        self._tool = _Visit()

    def permit(self, where: WebAddress) -> None:
        """Take note that somebody allowed going to this host; while the browser is open its pages may be shown."""
        self._permitted.add(where.host)

    def forbidden(self, where: WebAddress) -> str | None:
        """Why nothing may be loaded from an address, not even a picture for another page; None where it may."""
        decision = self._decide(where)
        return next((str(r) for r in decision.reasons if r.behavior == "deny" and r.kind != "mode"), None)

    def refused(self, where: WebAddress) -> str | None:
        """Why a page may not be shown; None where it may."""
        if (why := self.forbidden(where)) is not None:
            return why
        decision = self._decide(where)
        return None if decision.behavior == "allow" or where.host in self._permitted else decision.why

    def _decide(self, where: WebAddress) -> Decision:
        if self.judge is None:
            return Decision("ask", ())
        input = {"url": where.url}
        call = ToolCall("", self._tool.name, input)
        return self.judge.decide(PlannedCall(call, self._tool, input, input, (Fetches(where.url),)), ())
