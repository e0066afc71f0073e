"""The limits that settings name, in force on the tools of a catalog and changed with the settings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from wieldy.core.catalog import Catalog
from wieldy.core.tool import Tool
from wieldy.engine.limits import Invalidation, limited


class Limiting:
    """Wraps tools. A section that stays as it was keeps its wrapper: what was counted and kept still counts."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._bare: dict[str, Tool] = {}
        self._sections: dict[str, Mapping[str, Any]] = {}
        self.invalidation = Invalidation()

    @property
    def caches(self) -> bool:
        """Whether any result is kept, so that changes must be noticed."""
        return any("cacheSeconds" in section for section in self._sections.values())

    def apply(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Put these limits in force, and no others."""
        wanted = {name: section for name, section in sections.items() if name in self._catalog}
        before, self._sections = self._sections, wanted
        for name in {*before, *wanted}:
            if before.get(name) != wanted.get(name):
                self._catalog.adapt(name, self._changed)

    def _changed(self, tool: Tool) -> Tool:
        bare = self._bare.setdefault(tool.name, tool)
        section = self._sections.get(tool.name)
        if section is None:
            return self._bare.pop(tool.name)
        wrapped = limited(bare, section)
        self.invalidation.watch(wrapped)
        return wrapped
