"""Pages that were read in the last quarter of an hour, the most recent ones, within a budget of memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from time import monotonic

from wieldy.core.workspace import Workspace
from wieldy.web.page import Page

SECONDS = 15 * 60.0
BUDGET = 32 << 20
MOST = 200


class PageCache:
    """The cache of a workspace: `workspace.resident(PageCache)`."""

    def __init__(self, workspace: Workspace, *, clock: Callable[[], float] = monotonic, budget: int = BUDGET) -> None:
        self._clock = clock
        self._budget = budget
        self._pages: OrderedDict[str, tuple[float, Page]] = OrderedDict()
        self._weight = 0

    def find(self, url: str) -> Page | None:
        """The page of this address, if it was read a short time ago."""
        found = self._pages.get(url)
        if found is None:
            return None
        since, page = found
        if self._clock() - since > SECONDS:
            self._drop(url)
            return None
        self._pages.move_to_end(url)
        return page

    def keep(self, url: str, page: Page) -> None:
        """Keep a page under the address it was asked for by; those not looked at for longest make room."""
        self._drop(url)
        if page.weight > self._budget // 4:
            return
        self._pages[url] = (self._clock(), page)
        self._weight += page.weight
        while self._weight > self._budget or len(self._pages) > MOST:
            self._drop(next(iter(self._pages)))

    def _drop(self, url: str) -> None:
        if (found := self._pages.pop(url, None)) is not None:
            self._weight -= found[1].weight
