"""Wrappers that limit a tool: rate limit, timeout, result cache. Each is usable alone."""

from __future__ import annotations

import json
import math
from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from time import monotonic
from typing import Any, TypeGuard

from wieldy.core.call import PlannedCall
from wieldy.core.catalog import Catalog
from wieldy.core.decision import Advice
from wieldy.core.effects import NO_EFFECTS, Effects, Reads, Writes, clash
from wieldy.core.errors import Refusal, ToolDefinitionError
from wieldy.core.tool import Output, Progress, Tool, ToolContext
from wieldy.core.workspace import Workspace
from wieldy.engine.pipeline import run_tool

Clock = Callable[[], float]


class WrappedTool(Tool):
    """Delegates everything to another tool; subclasses override what they change."""

    def __init__(self, tool: Tool) -> None:
        self.inner = tool
        for name in _COPIED_ATTRIBUTES:
            setattr(self, name, getattr(tool, name))

    @property
    def parameters(self) -> Any:
        return self.inner.parameters

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        return self.inner.effects(input, workspace)

    def normalize(self, input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
        return self.inner.normalize(input, workspace)

    def concurrency_safe(self, input: Mapping[str, Any]) -> bool | None:
        return self.inner.concurrency_safe(input)

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        return self.inner.needs_permission(input, effects)

    def destructive(self, input: Mapping[str, Any]) -> bool:
        return self.inner.destructive(input)

    async def describe(self, workspace: Workspace, input: Mapping[str, Any] | None = None) -> str:
        return await self.inner.describe(workspace, input)

    async def enabled(self, workspace: Workspace) -> bool | str:
        return await self.inner.enabled(workspace)

    @property
    def has_check(self) -> bool:
        return self.inner.has_check

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        return await self.inner.check(input, ctx)

    def run(self, args: Any, ctx: ToolContext) -> Any:
        return self.inner.run(args, ctx)

    def show_use(self, input: Mapping[str, Any]) -> str:
        return self.inner.show_use(input)

    def show_progress(self, progress: Progress) -> str:
        return self.inner.show_progress(progress)

    def show_result(self, result: Any) -> str:
        return self.inner.show_result(result)


_COPIED_ATTRIBUTES = (
    "name", "title", "description", "prompt", "aliases", "read_only", "deferred", "paths", "max_result_chars", "timeout",
)  # fmt: skip


class TimeLimited(WrappedTool):
    """Replaces the timeout of a tool; `math.inf` removes it."""

    def __init__(self, tool: Tool, seconds: float) -> None:
        super().__init__(tool)
        if not seconds > 0:
            raise ToolDefinitionError(f"a time limit of {seconds:g} s would never let {tool.name} run")
        self.timeout = None if math.isinf(seconds) else seconds


class RateLimited(WrappedTool):
    """Allows at most `calls` calls in any `seconds`. One too many is refused with the time to wait."""

    def __init__(self, tool: Tool, calls: int, seconds: float, clock: Clock = monotonic) -> None:
        super().__init__(tool)
        if calls < 1 or not seconds > 0:
            raise ToolDefinitionError(f"a limit of {calls} calls in {seconds:g} s would never let {tool.name} run")
        self._max_calls = calls
        self._seconds = seconds
        self._clock = clock
        self._times: deque[float] = deque(maxlen=calls)

    @property
    def has_check(self) -> bool:
        return True

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Run the tool's own check, then check the rate: only calls that get this far are counted."""
        doubt = await self.inner.check(input, ctx)
        now = self._clock()
        if len(self._times) == self._max_calls and now - self._times[0] < self._seconds:
            wait = self._seconds - (now - self._times[0])
            raise Refusal(
                "check",
                f"{self.name} may be called {self._max_calls} times in {self._seconds:g} s. "
                f"Try again in {wait:.1f} s, or go on with something else.",
            )
        self._times.append(now)
        return doubt


class CachedTool(WrappedTool):
    """Reuses the results of a read-only tool for `seconds`, unless a write touched what it had read."""

    def __init__(self, tool: Tool, seconds: float, max_entries: int = 256, clock: Clock = monotonic) -> None:
        super().__init__(tool)
        if not tool.read_only:
            raise ToolDefinitionError(f"{tool.name} is not read-only: its results must not be used again")
        self._seconds = seconds
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Effects, Output]] = OrderedDict()

    async def run(self, args: Any, ctx: ToolContext) -> Output:  # type: ignore[override]
        """Return the cached result for this input, else run the tool and cache what is no error."""
        key = _key(args)
        entry = self._entries.get(key)
        if entry is not None and self._clock() - entry[0] < self._seconds:
            self._entries.move_to_end(key)
            return entry[2]
        started = self._clock()
        output = await run_tool(self.inner, args, ctx, lambda progress: None)
        if not output.is_error:
            effects = self.inner.effects(args, ctx.workspace) if isinstance(args, dict) else NO_EFFECTS
            self._entries[key] = (started, effects, output)
            while len(self._entries) > self._max_entries:
                self._entries.popitem(last=False)
        return output

    def invalidate(self, effects: Effects) -> None:
        """Drop the results that may depend on what these effects change."""
        if any(effect.opaque for effect in effects):
            self._entries.clear()
            return
        writes = tuple(effect for effect in effects if isinstance(effect, Writes))
        if writes:
            stale = [key for key, (_, reads, _) in self._entries.items() if _depends(reads, writes)]
            for key in stale:
                del self._entries[key]


def apply_limits(tool: Tool, section: Mapping[str, Any]) -> Tool:
    """Wrap a tool as its settings ask: `rateLimit`, `cacheSeconds`, `timeout`."""
    rate = section.get("rateLimit")
    if isinstance(rate, Mapping) and _is_number(rate.get("calls")) and _is_number(rate.get("seconds")):
        tool = RateLimited(tool, int(rate["calls"]), float(rate["seconds"]))
    if _is_number(seconds := section.get("cacheSeconds")) and tool.read_only:
        tool = CachedTool(tool, float(seconds))
    if _is_number(seconds := section.get("timeout")):
        tool = TimeLimited(tool, float(seconds))
    return tool


def _caches_in(tool: Tool) -> tuple[CachedTool, ...]:
    caches: list[CachedTool] = []
    while isinstance(tool, WrappedTool):
        if isinstance(tool, CachedTool):
            caches.append(tool)
        tool = tool.inner
    return tuple(caches)


class CacheInvalidator:
    """An adviser without opinions: it invalidates caches before a call changes something."""

    def __init__(self) -> None:
        self._caches: list[CachedTool] = []

    def watch(self, tool: Tool) -> None:
        self._caches += _caches_in(tool)

    def wants(self, plan: PlannedCall) -> bool:
        return any(isinstance(effect, Writes) or effect.opaque for effect in plan.effects)

    async def advise(self, plan: PlannedCall) -> Advice:
        for cache in self._caches:
            cache.invalidate(plan.effects)
        return Advice()


def _depends(reads: Effects, writes: Effects) -> bool:
    """A result without declared reads depends on everything."""
    return not any(isinstance(effect, Reads) for effect in reads) or clash(reads, writes)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _key(args: Any) -> str:
    try:
        return json.dumps(args, sort_keys=True, default=repr)
    except (TypeError, ValueError):
        return repr(args)


class ToolLimits:
    """Wraps the tools of a catalog. A section that stays as it was keeps its wrapper, with its counts and cache."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._originals: dict[str, Tool] = {}
        self._sections: dict[str, Mapping[str, Any]] = {}
        self.invalidator = CacheInvalidator()

    @property
    def has_caches(self) -> bool:
        return any("cacheSeconds" in section for section in self._sections.values())

    def apply(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Put these limits in force, and no others."""
        limited = {name: section for name, section in sections.items() if name in self._catalog}
        before, self._sections = self._sections, limited
        for name in {*before, *limited}:
            if before.get(name) != limited.get(name):
                self._catalog.adapt(name, self._wrap)

    def _wrap(self, tool: Tool) -> Tool:
        original = self._originals.setdefault(tool.name, tool)
        section = self._sections.get(tool.name)
        if section is None:
            return self._originals.pop(tool.name)
        wrapped = apply_limits(original, section)
        self.invalidator.watch(wrapped)
        return wrapped
