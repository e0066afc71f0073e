"""Limits as wrappers round a tool: how often, how long, and how long a result may be used again. Each is usable alone."""

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
from wieldy.core.effects import NO_EFFECTS, Effects, Reads, Writes, clash, is_opaque
from wieldy.core.errors import Refusal, ToolDefinitionError
from wieldy.core.tool import Output, Progress, Tool, ToolContext
from wieldy.core.workspace import Workspace
from wieldy.engine.pipeline import run_tool

Clock = Callable[[], float]


class Wrapped(Tool):
    """A tool that is another one but for what a subclass changes."""

    def __init__(self, tool: Tool) -> None:
        self.inner = tool
        for name in (
            "name",
            "title",
            "prompt",
            "aliases",
            "read_only",
            "deferred",
            "paths",
            "max_result_chars",
            "timeout",
        ):
            setattr(self, name, getattr(tool, name))
        self.description = tool.description

    @property
    def parameters(self) -> Any:
        """Those of the tool inside."""
        return self.inner.parameters

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """Those of the tool inside."""
        return self.inner.effects(input, workspace)

    def normalize(self, input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
        """As the tool inside does."""
        return self.inner.normalize(input, workspace)

    def concurrency_safe(self, input: Mapping[str, Any]) -> bool | None:
        """As the tool inside is."""
        return self.inner.concurrency_safe(input)

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        """As the tool inside does."""
        return self.inner.needs_permission(input, effects)

    def destructive(self, input: Mapping[str, Any]) -> bool:
        """As the tool inside is."""
        return self.inner.destructive(input)

    async def describe(self, workspace: Workspace, input: Mapping[str, Any] | None = None) -> str:
        """As the tool inside does."""
        return await self.inner.describe(workspace, input)

    async def enabled(self, workspace: Workspace) -> bool | str:
        """As the tool inside is."""
        return await self.inner.enabled(workspace)

    @property
    def has_check(self) -> bool:
        """As the tool inside does."""
        return self.inner.has_check

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        """As the tool inside does."""
        return await self.inner.check(input, ctx)

    def run(self, args: Any, ctx: ToolContext) -> Any:
        """As the tool inside does."""
        return self.inner.run(args, ctx)

    def show_use(self, input: Mapping[str, Any]) -> str:
        """As the tool inside does."""
        return self.inner.show_use(input)

    def show_progress(self, progress: Progress) -> str:
        """As the tool inside does."""
        return self.inner.show_progress(progress)

    def show_result(self, result: Any) -> str:
        """As the tool inside does."""
        return self.inner.show_result(result)


class TimeLimited(Wrapped):
    """The tool, with another limit on how long a call may take; `math.inf` lifts it."""

    def __init__(self, tool: Tool, seconds: float) -> None:
        super().__init__(tool)
        if not seconds > 0:
            raise ToolDefinitionError(f"a time limit of {seconds:g} s would never let {tool.name} run")
        self.timeout = None if math.isinf(seconds) else seconds


class RateLimited(Wrapped):
    """The tool, at most `calls` times in any `seconds`. A call too many is refused and told when to come back."""

    def __init__(self, tool: Tool, calls: int, seconds: float, clock: Clock = monotonic) -> None:
        super().__init__(tool)
        if calls < 1 or not seconds > 0:
            raise ToolDefinitionError(f"a limit of {calls} calls in {seconds:g} s would never let {tool.name} run")
        self._most = calls
        self._seconds = seconds
        self._clock = clock
        self._times: deque[float] = deque(maxlen=calls)

    @property
    def has_check(self) -> bool:
        """There is always the rate to check."""
        return True

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        """The tool's own check, then the rate: only calls that get this far are counted."""
        doubt = await self.inner.check(input, ctx)
        now = self._clock()
        if len(self._times) == self._most and now - self._times[0] < self._seconds:
            wait = self._seconds - (now - self._times[0])
            raise Refusal(
                "check",
                f"{self.name} may be called {self._most} times in {self._seconds:g} s. "
                f"Try again in {wait:.1f} s, or go on with something else.",
            )
        self._times.append(now)
        return doubt


class Cached(Wrapped):
    """A read-only tool whose result is used again for `seconds`, unless a write touched what it had read."""

    def __init__(self, tool: Tool, seconds: float, most: int = 256, clock: Clock = monotonic) -> None:
        super().__init__(tool)
        if not tool.read_only:
            raise ToolDefinitionError(f"{tool.name} is not read-only: its results must not be used again")
        self._seconds = seconds
        self._most = most
        self._clock = clock
        self._kept: OrderedDict[str, tuple[float, Effects, Output]] = OrderedDict()

    async def run(self, args: Any, ctx: ToolContext) -> Output:  # type: ignore[override]
        """The result kept for this input if there is one, else a new one, kept if it is no error."""
        key = _key(args)
        found = self._kept.get(key)
        if found is not None and self._clock() - found[0] < self._seconds:
            self._kept.move_to_end(key)
            return found[2]
        started = self._clock()
        output = await run_tool(self.inner, args, ctx, lambda progress: None)
        if not output.is_error:
            touched = self.inner.effects(args, ctx.workspace) if isinstance(args, dict) else NO_EFFECTS
            self._kept[key] = (started, touched, output)
            while len(self._kept) > self._most:
                self._kept.popitem(last=False)
        return output

    def forget(self, effects: Effects) -> None:
        """Something was touched: results that may depend on it are not used again."""
        if any(map(is_opaque, effects)):
            self._kept.clear()
            return
        written = tuple(effect for effect in effects if isinstance(effect, Writes))
        if written:
            stale = [key for key, (_, read, _) in self._kept.items() if _depends(read, written)]
            for key in stale:
                del self._kept[key]


def limited(tool: Tool, section: Mapping[str, Any]) -> Tool:
    """The tool with the limits that its settings ask for: `rateLimit`, `cacheSeconds`, `timeout`."""
    rate = section.get("rateLimit")
    if isinstance(rate, Mapping) and _is_number(rate.get("calls")) and _is_number(rate.get("seconds")):
        tool = RateLimited(tool, int(rate["calls"]), float(rate["seconds"]))
    if _is_number(seconds := section.get("cacheSeconds")) and tool.read_only:
        tool = Cached(tool, float(seconds))
    if _is_number(seconds := section.get("timeout")):
        tool = TimeLimited(tool, float(seconds))
    return tool


def caches_in(tool: Tool) -> tuple[Cached, ...]:
    """The caches among the wrappers of a tool."""
    found: list[Cached] = []
    while isinstance(tool, Wrapped):
        found += [tool] if isinstance(tool, Cached) else []
        tool = tool.inner
    return tuple(found)


class Invalidation:
    """An adviser that has no opinion: it tells caches of every call that is about to change something."""

    def __init__(self) -> None:
        self._caches: list[Cached] = []

    def watch(self, tool: Tool) -> None:
        """Keep the caches of a tool up to date."""
        self._caches += caches_in(tool)

    def wants(self, plan: PlannedCall) -> bool:
        """Whether the call may change anything."""
        return any(isinstance(effect, Writes) or is_opaque(effect) for effect in plan.effects)

    async def advise(self, plan: PlannedCall) -> Advice:
        """Let the caches forget what this call may change."""
        for cache in self._caches:
            cache.forget(plan.effects)
        return Advice()


def _depends(read: Effects, written: Effects) -> bool:
    """A result of which it is not known what it read depends on everything."""
    return not any(isinstance(effect, Reads) for effect in read) or clash(read, written)


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _key(args: Any) -> str:
    try:
        return json.dumps(args, sort_keys=True, default=repr)
    except (TypeError, ValueError):
        return repr(args)


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
