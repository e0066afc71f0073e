"""The catalog as calls see it: whoever calls a deferred tool by name has loaded it."""

from __future__ import annotations

from collections.abc import Iterator

from wieldy.core.catalog import Catalog
from wieldy.core.tool import Tool
from wieldy.pool.pool import Pool


class Called(Catalog):
    """Another view of a catalog, in which finding a tool counts as a call of it."""

    def __init__(self, catalog: Catalog, pool: Pool) -> None:
        super().__init__()
        self._catalog = catalog
        self._pool = pool

    def find(self, name: str) -> Tool | None:
        """The tool of exactly this name, loaded from now on."""
        if self._pool.waiting:
            self._pool.called(name)
        return self._catalog.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: str) -> bool:
        return name in self._catalog
