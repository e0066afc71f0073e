"""Judges a URL that a call talks to."""

from __future__ import annotations

from collections.abc import Iterator

from wieldy.core.decision import Reason
from wieldy.permissions import suggest
from wieldy.permissions.domain import host_of
from wieldy.permissions.finding import Case, Finding, by_rule
from wieldy.permissions.ruleset import Shelves


class Addresses:
    """The network policy."""

    def __init__(self, shelves: Shelves) -> None:
        self._deny, self._ask, self._allow = shelves.deny, shelves.ask, shelves.allow

    def judge(self, url: str, case: Case, part: str | None = None, command: Finding | None = None) -> Iterator[Finding]:
        """What rules, mode and defaults say about one address; `command` is what was found about the one that talks to it."""
        host = host_of(url)
        for shelf in (self._deny, self._ask):
            rule = (shelf.for_host(host) if host else None) or shelf.for_tool("WebFetch")
            if rule is not None:
                yield Finding(by_rule(rule, f"is about {host or url}", part))
        yield self._permitted(host, url, case, part, command)

    def _permitted(self, host: str | None, url: str, case: Case, part: str | None, command: Finding | None) -> Finding:
        rule = self._allow.for_host(host) if host else None
        if rule is not None:
            return Finding(by_rule(rule, f"is about {host}", part))
        if case.mode.accepts_all:
            return Finding(Reason("mode", "allow", f"{case.mode.name} mode", part=part))
        if case.cover is not None:
            return Finding(case.cover)
        if command is not None:
            return command
        return Finding(Reason("default", "ask", f"talks to {host or url}", part=part), suggest.for_host(host))
