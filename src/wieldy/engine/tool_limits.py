"""Wrappers around a tool: time limit, rate limit, result cache, log. Each is usable alone, and they can be nested."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from time import monotonic
from typing import Any, TypeGuard

from wieldy.core.catalog import Catalog
from wieldy.core.effects import NO_EFFECTS, Effects, InTurn, Reads, Writes, clash
from wieldy.core.errors import Refusal, ToolDefinitionError, WieldyError
from wieldy.core.text import truncate_line
from wieldy.core.tool import Output, Progress, Tool, ToolContext
from wieldy.core.workspace import Workspace
from wieldy.engine.pipeline import iterate_tool

Clock = Callable[[], float]
Sleep = Callable[[float], Awaitable[None]]
MAX_LOGGED_CHARS = 200


class WrappedTool(Tool):
    """Is in everything as another tool; subclasses override what they change."""

    def __init__(self, tool: Tool) -> None:
        self.inner = tool

    def is_cached(self, args: Any, ctx: ToolContext) -> bool:
        """Whether a call with these arguments would be answered from a cache below this wrapper."""
        return isinstance(self.inner, WrappedTool) and self.inner.is_cached(args, ctx)


def _of_inner(name: str) -> property:
    return property(lambda wrapped: getattr(wrapped.inner, name))


for _name in {*vars(Tool), *Tool.__annotations__}:
    if not _name.startswith("_"):
        setattr(WrappedTool, _name, _of_inner(_name))


class TimeLimited(WrappedTool):
    """Replaces the timeout of a tool; `math.inf` removes it."""

    timeout: float | None = None

    def __init__(self, tool: Tool, seconds: float) -> None:
        super().__init__(tool)
        if not is_number(seconds):
            raise ToolDefinitionError(f"a time limit of {seconds!r} s would never let {tool.name} run")
        self.timeout = None if math.isinf(seconds) else seconds


class RateLimited(WrappedTool):
    """Lets at most `calls` calls run in any `seconds`; refused calls and results from a cache do not count.

    One too many is refused with the time to wait, or waits itself if `wait` is true.
    """

    def __init__(
        self,
        tool: Tool,
        calls: int,
        seconds: float,
        *,
        wait: bool = False,
        clock: Clock = monotonic,
        sleep: Sleep = asyncio.sleep,
    ) -> None:
        super().__init__(tool)
        if not isinstance(calls, int) or not is_number(calls) or not is_number(seconds):
            raise ToolDefinitionError(f"a limit of {calls!r} calls in {seconds!r} s would never let {tool.name} run")
        self._max_calls = calls
        self._seconds = seconds
        self._wait = wait
        self._clock = clock
        self._sleep = sleep
        self._times: deque[float] = deque(maxlen=calls)

    @property
    def has_check(self) -> bool:
        return True

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """Those of the tool. Which call is one too many is decided in the order of the calls."""
        effects = self.inner.effects(input, workspace)
        return effects if self._wait else (*effects, InTurn(f"the rate limit of {self.name}"))

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Run the tool's own check; refuse a call too many before anybody is asked about it."""
        doubt = await self.inner.check(input, ctx)
        if not self._wait and self._seconds_to_wait() > 0 and not self.is_cached(self.parameters.accept(input), ctx):
            raise self._refusal()
        return doubt

    async def run(self, args: Any, ctx: ToolContext) -> AsyncIterator[Progress | Output]:
        if not self.is_cached(args, ctx):
            while (seconds := self._seconds_to_wait()) > 0:
                if not self._wait:
                    raise self._refusal()
                yield Progress(f"waiting {seconds:.1f} s: {self._describe_limit()}")
                await self._sleep(seconds)
            self._times.append(self._clock())
        async for item in iterate_tool(self.inner, args, ctx):
            yield item

    def _seconds_to_wait(self) -> float:
        if len(self._times) < self._max_calls:
            return 0.0
        return self._seconds - (self._clock() - self._times[0])

    def _refusal(self) -> Refusal:
        return Refusal(
            "check",
            f"{self._describe_limit()}.",
            f"Try again in {self._seconds_to_wait():.1f} s, or continue with something else.",
        )

    def _describe_limit(self) -> str:
        times = "once" if self._max_calls == 1 else f"{self._max_calls} times"
        return f"{self.name} may be called {times} in {self._seconds:g} s"


class Cached(WrappedTool):
    """Reuses the results of a read-only tool for `seconds`, unless a call of the toolbox may have changed what it had read."""

    caches_results = True

    def __init__(self, tool: Tool, seconds: float, *, max_entries: int = 256, clock: Clock = monotonic) -> None:
        super().__init__(tool)
        if not tool.read_only:
            raise ToolDefinitionError(f"{tool.name} is not read-only: its results must not be used again")
        if not is_number(seconds):
            raise ToolDefinitionError(f"results of {tool.name} cannot be kept for {seconds!r} s")
        self._seconds = seconds
        self._max_entries = max_entries
        self._clock = clock
        self._entries: OrderedDict[str, tuple[float, Effects, Output]] = OrderedDict()
        self._invalidations = 0

    def is_cached(self, args: Any, ctx: ToolContext) -> bool:
        entry = self._entries.get(_key(args, ctx))
        return entry is not None and self._clock() - entry[0] < self._seconds

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Any:
        """Run the tool's own check; a rate limit does not matter where the result is cached."""
        tool = self.inner
        if self.has_check and self.is_cached(self.parameters.accept(input), ctx):
            while isinstance(tool, RateLimited):
                tool = tool.inner
        return await tool.check(input, ctx)

    async def run(self, args: Any, ctx: ToolContext) -> AsyncIterator[Progress | Output]:
        key = _key(args, ctx)
        if self.is_cached(args, ctx):
            self._entries.move_to_end(key)
            yield self._entries[key][2]
            return
        started, invalidations = self._clock(), self._invalidations
        async for item in iterate_tool(self.inner, args, ctx):
            # What was read while something changed may be old.
            if isinstance(item, Output) and not item.is_error and self._invalidations == invalidations:
                self._entries[key] = (started, NO_EFFECTS if ctx.plan is None else ctx.plan.effects, item)
                while len(self._entries) > self._max_entries:
                    self._entries.popitem(last=False)
            yield item

    def invalidate(self, effects: Effects) -> None:
        """Drop the results that may depend on what these effects change."""
        self._invalidations += 1
        if any(effect.opaque for effect in effects):
            self._entries.clear()
        else:
            writes = tuple(effect for effect in effects if isinstance(effect, Writes))
            for key in [key for key, (_, reads, _) in self._entries.items() if _depends(reads, writes)]:
                del self._entries[key]
        super().invalidate(effects)


class Logged(WrappedTool):
    """Logs each run of a tool: its input, then how it ended and how long it took. Failures are warnings."""

    def __init__(self, tool: Tool, logger: logging.Logger | None = None, *, clock: Clock = monotonic) -> None:
        super().__init__(tool)
        self._logger = logger or logging.getLogger("wieldy.tools")
        self._clock = clock

    async def run(self, args: Any, ctx: ToolContext) -> AsyncIterator[Progress | Output]:
        logger, started = self._logger, self._clock()
        logger.info("%s %s started with %s", self.name, ctx.call_id, truncate_line(_as_json(args), MAX_LOGGED_CHARS))
        try:
            async for item in iterate_tool(self.inner, args, ctx):
                if isinstance(item, Output):
                    level, end = (logging.WARNING, "failed") if item.is_error else (logging.INFO, "succeeded")
                    logger.log(level, "%s %s %s after %.3f s", self.name, ctx.call_id, end, self._clock() - started)
                yield item
        except asyncio.CancelledError:
            logger.warning("%s %s was stopped after %.3f s", self.name, ctx.call_id, self._clock() - started)
            raise
        except Exception as error:
            seconds = self._clock() - started
            text = truncate_line(str(error) or type(error).__name__, MAX_LOGGED_CHARS)
            trace = None if isinstance(error, WieldyError) else error
            logger.warning("%s %s failed after %.3f s: %s", self.name, ctx.call_id, seconds, text, exc_info=trace)
            raise


def apply_limits(tool: Tool, section: Mapping[str, Any]) -> Tool:
    """Wrap a tool as its settings ask: `rateLimit`, `cacheSeconds`, `timeout`."""
    rate = section.get("rateLimit")
    if isinstance(rate, Mapping) and is_number(rate.get("calls")) and is_number(rate.get("seconds")):
        tool = RateLimited(tool, int(rate["calls"]), float(rate["seconds"]), wait=rate.get("wait") is True)
    if is_number(seconds := section.get("cacheSeconds")) and tool.read_only:
        tool = Cached(tool, float(seconds))
    if is_number(seconds := section.get("timeout")):
        tool = TimeLimited(tool, float(seconds))
    return tool


def _depends(reads: Effects, writes: Effects) -> bool:
    """A result without declared reads depends on everything."""
    return not any(isinstance(effect, Reads) for effect in reads) or clash(reads, writes)


def is_number(value: Any) -> TypeGuard[int | float]:
    """Whether a value is a number above zero."""
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0


def _key(args: Any, ctx: ToolContext) -> str:
    """The arguments of a call and the folder that relative paths in them start from."""
    return f"{ctx.cwd}\0{_as_json(args)}"


def _as_json(args: Any) -> str:
    try:
        return json.dumps(args, sort_keys=True, default=repr)
    except (TypeError, ValueError):
        return repr(args)


class ToolLimits:
    """Wraps the tools of a catalog, also those that come later, such as those of MCP servers.

    A section that stays as it was keeps its wrapper, with its counts and cache.
    """

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        catalog.wrap = self._wrap_new
        self._originals: dict[str, Tool] = {}
        self._sections: dict[str, Mapping[str, Any]] = {}

    def apply(self, sections: Mapping[str, Mapping[str, Any]]) -> None:
        """Put these limits in force, and no others."""
        before, self._sections = self._sections, dict(sections)
        for name in {*before, *sections}:
            if before.get(name) != sections.get(name):
                self._catalog.adapt(name, self._wrap)

    def _wrap_new(self, tool: Tool) -> Tool:
        self._originals.pop(tool.name, None)  # of another tool of this name
        return self._wrap(tool)

    def _wrap(self, tool: Tool) -> Tool:
        original = self._originals.setdefault(tool.name, tool)
        section = self._sections.get(tool.name)
        if section is None:
            return self._originals.pop(tool.name)
        return apply_limits(original, section)
