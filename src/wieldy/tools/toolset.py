"""Which tools a model is offered: feature gates, order, deferral and search."""

from __future__ import annotations

import asyncio
import json
import math
import re
from bisect import bisect_left
from collections import Counter
from collections.abc import Awaitable, Callable, Container, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import chain
from operator import attrgetter
from typing import Any, Literal, Protocol, TypeAlias
from weakref import WeakKeyDictionary

from msgspec import Struct

from wieldy.core.catalog import ENABLED_CHECK_SECONDS, Catalog, ToolAvailability, ask_enabled
from wieldy.core.decision import Judge
from wieldy.core.logs import log
from wieldy.core.provider import ToolSpec
from wieldy.core.supervise import Abort, Supervisor
from wieldy.core.text import plural
from wieldy.core.threads import in_thread
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace

SIMPLE_FEATURE = "simple"
SIMPLE_TOOLS = frozenset({"Bash", "Edit", "Read"})
PLAN_TOOLS = frozenset({"ExitPlan"})
GATED_TOOLS: Mapping[str, str] = {
    "Architect": "architect",
    "MemoryRead": "memory",
    "MemoryWrite": "memory",
    "StickerRequest": "stickers",
}
GATED_PREFIXES: Mapping[str, str] = {"Browser": "browser"}
FEATURE_VARIABLE = "WIELDY_FEATURE_"
TRUE_VALUES = frozenset({"1", "true", "yes", "on"})


class OfferContext(Struct, frozen=True):
    """Who is offered tools. `only` is a subagent's list: names, or patterns such as `mcp__github__*`."""

    mode: str = "default"
    simple: bool = False
    only: tuple[str, ...] | None = None


def is_feature_enabled(feature: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> bool:
    """Whether a feature is enabled; the environment wins over the settings."""
    variable = env.get(FEATURE_VARIABLE + feature.upper())
    if variable is not None:
        return variable.strip().lower() in TRUE_VALUES
    features = settings.get("features")
    return isinstance(features, Mapping) and features.get(feature) is True


def feature_gate(name: str, settings: Mapping[str, Any], env: Mapping[str, str]) -> str | None:
    """Why the feature gate of a tool is closed, or None."""
    feature = GATED_TOOLS.get(name) or next(
        (f for prefix, f in GATED_PREFIXES.items() if name.startswith(prefix)), None
    )
    if feature is None or is_feature_enabled(feature, settings, env):
        return None
    return f"its feature is off; switch it on with `features.{feature}` in the settings or {FEATURE_VARIABLE}{feature.upper()}=1"


def why_excluded_by_name(name: str, context: OfferContext) -> str | None:
    """Why the context excludes a tool of this name, or None."""
    if context.simple and name not in SIMPLE_TOOLS:
        return f"simple mode has only {', '.join(sorted(SIMPLE_TOOLS))}"
    if context.mode != "plan" and name in PLAN_TOOLS:
        return "only for plan mode"
    if context.only is not None and not any(fnmatchcase(name, pattern) for pattern in context.only):
        return "not in the list of this agent"
    return None


def why_excluded(tool: Tool, context: OfferContext) -> str | None:
    """Why the context excludes a tool, or None."""
    if (reason := why_excluded_by_name(tool.name, context)) is not None:
        return reason
    if context.mode == "plan" and is_mcp_tool(tool):
        return "plan mode only reads, and of this tool only its server says what it touches"
    if context.mode == "plan" and not tool.read_only:
        return "plan mode only reads, and this tool may change something"
    return None


async def check_availability(
    tools: Sequence[Tool],
    context: OfferContext,
    *,
    gate: Callable[[str], str | None],
    removes: Callable[[str], object | None],
    disabled: Callable[[Tool], Awaitable[str | None]],
) -> list[ToolAvailability]:
    """Whether each tool is offered, and why or why not, in the order given. The tools' own checks run side by side.

    `gate` returns why a feature gate is closed, `removes` the deny rule that removes a tool, `disabled` what its own check says.
    """

    async def reason(tool: Tool) -> str | None:
        if (excluded := gate(tool.name) or why_excluded(tool, context)) is not None:
            return excluded
        if (rule := removes(tool.name)) is not None:
            return str(rule)
        return await disabled(tool) if tool.has_enabled_check else None

    reasons = await asyncio.gather(*map(reason, tools))
    return [
        ToolAvailability(tool, excluded is None, excluded or "available")
        for tool, excluded in zip(tools, reasons, strict=True)
    ]


Defer: TypeAlias = Literal["auto", "always", "never"]

CHARS_PER_TOKEN = 4
CONTEXT_SHARE = 0.1
MCP_PREFIX = "mcp__"
MAX_LISTING_CHARS = 8_000
LISTING_HEADER = (
    "# Tools to be loaded\nThese exist but are not loaded. ToolSearch loads them; then call them as usual.\n"
)

_token_estimates: WeakKeyDictionary[Tool, int] = WeakKeyDictionary()


class ToolOrder(Struct, frozen=True):
    """Tools to send in full, in blocks that end at `breaks`, and those to send by name only."""

    tools: tuple[Tool, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...] = ()


def order_tools(
    tools: Iterable[Tool],
    *,
    builtin: Container[str] = (),
    defer: Defer = "auto",
    tokens: int,
    activated: Sequence[str] = (),
) -> ToolOrder:
    """Own tools by name, then those of MCP servers by name, then activated ones in the order of their activation."""
    own: dict[str, Tool] = {}
    mcp: dict[str, Tool] = {}
    for tool in sorted(tools, key=attrgetter("name")):
        (mcp if is_mcp_tool(tool) else own).setdefault(tool.name, tool)
    deferred = _deferred(own, mcp, builtin, defer, tokens)
    sent = [tool for name, tool in own.items() if name not in deferred]
    ends = [len(sent)]
    sent += (tool for name, tool in mcp.items() if name not in deferred)
    ends.append(len(sent))
    sent += (deferred.pop(name) for name in dict.fromkeys(activated) if name in deferred)
    ends.append(len(sent))
    return ToolOrder(tuple(sent), tuple(dict.fromkeys(end for end in ends if end)), tuple(deferred.values()))


def is_mcp_tool(tool: Tool) -> bool:
    """Whether a tool comes from an MCP server."""
    return tool.name.startswith(MCP_PREFIX)


def token_budget(context_window: int) -> int:
    """How many tokens tools may take of a context before some are deferred."""
    return int(context_window * CONTEXT_SHARE)


def estimate_tokens(tool: Tool) -> int:
    """Estimate the tokens that name, description and schema take."""
    estimate = _token_estimates.get(tool)
    if estimate is None:
        schema = json.dumps(tool.schema, ensure_ascii=False, separators=(",", ":"), default=str)
        estimate = (len(tool.name) + len(tool.description) + len(schema)) // CHARS_PER_TOKEN + 1
        _token_estimates[tool] = estimate
    return estimate


def _deferred(
    own: Mapping[str, Tool], mcp: Mapping[str, Tool], builtin: Container[str], defer: Defer, tokens: int
) -> dict[str, Tool]:
    """The tools that are not sent in full unless activated.

    Tools declared as deferred always are; those of servers when all together exceed the budget; and where our own alone exceed
    it, every one that was added to the built-in tools. So what servers bring never changes which of our own are sent.
    """
    if defer == "never":
        return {}
    declared = {name: tool for name, tool in own.items() if tool.deferred and not _is_always_loaded(tool)}
    deferrable = {name: tool for name, tool in mcp.items() if not _is_always_loaded(tool)}
    if defer == "always":
        return {**declared, **deferrable}
    rest = [tool for name, tool in own.items() if name not in declared]
    if _fit(chain(rest, mcp.values()), tokens):
        return declared
    if _fit(rest, tokens):
        return {**declared, **deferrable}
    sent = {tool.name for tool in rest if tool.name in builtin or _is_always_loaded(tool)}
    return {**{name: tool for name, tool in own.items() if name not in sent}, **deferrable}


def _fit(tools: Iterable[Tool], tokens: int) -> bool:
    for tool in tools:
        tokens -= estimate_tokens(tool)
        if tokens < 0:
            return False
    return tokens >= 0


def _is_always_loaded(tool: Tool) -> bool:
    return bool(getattr(tool.unwrapped, "always_load", False))


def list_deferred(tools: Sequence[Tool], most: int = MAX_LISTING_CHARS, starting: Sequence[str] = ()) -> str:
    """What the system prompt says of deferred tools; empty where there are none. Its length does not grow with their number.

    `starting` are servers whose tools are not known yet: a search waits for them.
    """
    if not tools and not starting:
        return ""
    pending = f"\nStill starting, ask ToolSearch for their tools: {', '.join(starting[:50])}" if starting else ""
    return LISTING_HEADER + _list_names(tools, most) + pending


def _list_names(tools: Sequence[Tool], most: int) -> str:
    groups: dict[str, list[str]] = {}
    for tool in tools:
        groups.setdefault(_group(tool.name), []).append(tool.name)
    share = most // max(len(groups), 1)
    lines: list[str] = []
    remaining = most
    unlisted = len(tools)
    for group, names in sorted(groups.items()):
        line = ", ".join(names)
        if len(line) > max(share, remaining // (len(groups) - len(lines))):
            line = f"{group}: {plural(len(names), 'tool')}, such as {names[0]}"
        if len(line) > remaining:
            return f"{chr(10).join(lines)}\n… and {unlisted} more"
        lines.append(line)
        remaining -= len(line)
        unlisted -= len(names)
    return "\n".join(lines)


def _group(name: str) -> str:
    parts = name.split("__")
    return "__".join(parts[:2]) if len(parts) > 2 else "others"


K1 = 1.2
B = 0.6
NAME_WEIGHT = 3
MIN_PREFIX_LENGTH = 3

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_a-zA-Z]+")


def split_words(text: str) -> Iterator[str]:
    """The words of a text or of a name in any style, in lower case and without a plural s."""
    for match in _WORD.finditer(text):
        word = match[0].lower()
        yield word[:-1] if len(word) > 3 and word[-1] == "s" and word[-2] != "s" else word


class ToolIndex:
    """An inverted index of tools. A query touches only the tools that share a word with it."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools: Sequence[Tool] = tuple(tools)
        counts = [_count_words(tool) for tool in self.tools]
        lengths = [sum(count.values()) for count in counts]
        mean = sum(lengths) / len(lengths) if lengths else 1.0
        postings: dict[str, list[tuple[int, int]]] = {}
        for number, count in enumerate(counts):
            for word, times in count.items():
                postings.setdefault(word, []).append((number, times))
        self._scores: dict[str, list[tuple[int, float]]] = {}
        for word, posting in postings.items():
            rarity = math.log(1 + (len(counts) - len(posting) + 0.5) / (len(posting) + 0.5))
            self._scores[word] = [
                (number, rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * lengths[number] / mean)))
                for number, times in posting
            ]
        self._vocabulary = sorted(self._scores)

    def search(self, query: str, most: int) -> list[Tool]:
        """Return the best tools, best first; equal scores are ordered by name."""
        totals: dict[int, float] = {}
        for word in dict.fromkeys(split_words(query)):
            for number, score in self._score(word):
                totals[number] = totals.get(number, 0.0) + score
        best = sorted(totals, key=lambda number: (-totals[number], self.tools[number].name))
        return [self.tools[number] for number in best[:most]]

    def _score(self, word: str) -> Iterable[tuple[int, float]]:
        exact = self._scores.get(word)
        if exact is not None or len(word) < MIN_PREFIX_LENGTH:
            return exact or ()
        # `repo` finds `repository`: each tool counts once, by its best word with this prefix.
        best: dict[int, float] = {}
        for longer in self._with_prefix(word):
            for number, score in self._scores[longer]:
                best[number] = max(score / 2, best.get(number, 0.0))
        return best.items()

    def _with_prefix(self, prefix: str) -> Iterator[str]:
        for index in range(bisect_left(self._vocabulary, prefix), len(self._vocabulary)):
            if not self._vocabulary[index].startswith(prefix):
                return
            yield self._vocabulary[index]


def _count_words(tool: Tool) -> Counter[str]:
    count = Counter(split_words(tool.description))
    for word in split_words(tool.name):
        count[word] += NAME_WEIGHT
    properties = tool.schema.get("properties")
    for name in properties if isinstance(properties, dict) else ():
        count.update(split_words(name))
    return count


DEFAULT_CONTEXT_WINDOW = 200_000
SERVER_WAIT_SECONDS = 30.0


class OfferedTools(Struct, frozen=True):
    """What one request carries of tools.

    `tools` are sent in full, in blocks that end at `breaks`; `deferred` ones are named in `listing`, which goes into the
    system prompt; `availability` has every tool that was considered with the reason why it is or is not offered.
    """

    tools: tuple[Tool, ...]
    definitions: tuple[ToolSpec, ...]
    breaks: tuple[int, ...]
    deferred: tuple[Tool, ...]
    listing: str
    availability: tuple[ToolAvailability, ...]


class ServerStarts(Protocol):
    """MCP servers whose tools may not be known yet."""

    def connecting(self) -> Sequence[str]:
        """The servers that are neither ready nor failed."""
        ...

    async def wait(self, seconds: float | None = None) -> None:
        """Wait until every server is ready or has failed, at most so many seconds."""
        ...


class Toolset:
    """What requests are made from and `ToolSearch` searches: `workspace.services.toolset`.

    `builtin` are the names of our own tools, `mode` returns the permission mode in force.
    """

    def __init__(
        self,
        catalog: Catalog,
        workspace: Workspace,
        activations: Activations,
        *,
        judge: Judge,
        mode: Callable[[], str],
        supervisor: Supervisor,
        builtin: Container[str],
        servers: ServerStarts,
    ) -> None:
        self._catalog = catalog
        self._workspace = workspace
        self._removal_reason = getattr(judge, "removal_reason", lambda name: None)
        self._mode = mode
        self._supervisor = supervisor
        self._builtin = builtin
        self._servers = servers
        self.activations = activations
        self.deferred: Mapping[str, Tool] = {}
        self.sent: Mapping[str, Tool] = {}
        self._definitions: WeakKeyDictionary[Tool, ToolSpec] = WeakKeyDictionary()
        self._index: ToolIndex | None = None
        self._window = DEFAULT_CONTEXT_WINDOW

    async def offering(
        self,
        window: int | None = None,
        *,
        only: Sequence[str] | None = None,
        every: bool = False,
        defer: Defer | None = None,
    ) -> OfferedTools:
        """Select what a request carries. `window` is the model's context, else the last one; `only` narrows the tools;
        `defer` replaces the setting of that name.

        Tools that are excluded by name are not even loaded, unless `every` tool is to be listed with a reason.
        """
        workspace, catalog = self._workspace, self._catalog
        context, gate = self._context(only), self._gate
        names = list(catalog) if every else self._names(context)
        tools = [tool for name in names if (tool := catalog.find(name)) is not None]
        availability = await check_availability(
            sorted(tools, key=lambda tool: (is_mcp_tool(tool), tool.name)),
            context,
            gate=gate,
            removes=self._removal_reason,
            disabled=lambda tool: ask_enabled(tool, workspace, self._supervisor, Abort()),
        )
        descriptions = await self._describe(each.tool for each in availability if each.offered)
        return self._offer(availability, window, descriptions, defer or self.defer)

    def offered_names(self) -> list[str]:
        """The tools of the last request; before the first one, those that nothing excludes by name."""
        if self.sent or self.deferred:
            return [*self.sent, *self.deferred]
        return [name for name in self._names(self._context(None)) if self._removal_reason(name) is None]

    def _context(self, only: Sequence[str] | None) -> OfferContext:
        workspace = self._workspace
        simple = is_feature_enabled(SIMPLE_FEATURE, workspace.settings, workspace.env)
        return OfferContext(self._mode(), simple, None if only is None else tuple(only))

    def _gate(self, name: str) -> str | None:
        return feature_gate(name, settings=self._workspace.settings, env=self._workspace.env)

    def _names(self, context: OfferContext) -> list[str]:
        return [name for name in self._catalog if self._closed(name, context) is None]

    def why_closed(self, name: str) -> str | None:
        """Why no tool of this name can be called now, whatever its input; None where the rules and the mode decide."""
        return self._closed(name, self._context(None))

    def _closed(self, name: str, context: OfferContext) -> str | None:
        return self._gate(name) or why_excluded_by_name(name, context)

    def candidates(self) -> list[Tool]:
        """The tools that no gate, mode or rule excludes, by name. Their own checks are not run: those may have to wait."""
        context = self._context(None)
        names = [name for name in self._names(context) if self._removal_reason(name) is None]
        tools = [tool for name in names if (tool := self._catalog.find(name)) is not None]
        fitting = [tool for tool in tools if why_excluded(tool, context) is None]
        return sorted(fitting, key=lambda tool: (is_mcp_tool(tool), tool.name))

    @property
    def defer(self) -> Defer:
        setting = self._workspace.setting("defer")
        return "always" if setting == "always" else "never" if setting == "never" else "auto"

    async def _describe(self, tools: Iterable[Tool]) -> Mapping[str, str]:
        """The descriptions that tools make for this workspace, by name; the fixed one where that fails."""
        describing = [tool for tool in tools if tool.has_describe]
        runs = (
            self._supervisor.run(tool.describe(self._workspace), Abort(), ENABLED_CHECK_SECONDS) for tool in describing
        )
        texts = await asyncio.gather(*runs, return_exceptions=True) if describing else ()
        descriptions: dict[str, str] = {}
        for tool, text in zip(describing, texts, strict=True):
            if isinstance(text, str) and text.strip():
                descriptions[tool.name] = text
            else:
                log.error("the description of %s could not be made: %r", tool.name, text)
        return descriptions

    def _offer(
        self,
        availability: Sequence[ToolAvailability],
        window: int | None,
        descriptions: Mapping[str, str],
        defer: Defer,
    ) -> OfferedTools:
        self._window = window or self._window
        order = order_tools(
            (each.tool for each in availability if each.offered),
            builtin=self._builtin,
            defer=defer,
            tokens=token_budget(self._window),
            activated=self.activations.names,
        )
        self.sent = {tool.name: tool for tool in order.tools}
        self.deferred = {tool.name: tool for tool in order.deferred}
        return OfferedTools(
            order.tools,
            tuple(self._definition(tool, descriptions.get(tool.name, tool.description)) for tool in order.tools),
            order.breaks,
            order.deferred,
            list_deferred(order.deferred, starting=self._servers.connecting() if defer != "never" else ()),
            tuple(map(self._mark_deferred, availability)),
        )

    def activate_called(self, name: str) -> None:
        """A deferred tool that is called by name is sent in full from now on."""
        if name in self.deferred:
            self.activations.activate((name,))

    async def select(self, names: Sequence[str]) -> tuple[list[Tool], list[str]]:
        """Return the tools of these names, and the names that do not exist."""
        await self._refresh()
        tools = {**self.sent, **self.deferred}
        return [tools[name] for name in names if name in tools], [name for name in names if name not in tools]

    async def search(self, query: str, most: int) -> list[Tool]:
        """Search the deferred tools; where none is deferred, those of servers, which may have just connected."""
        await self._refresh()
        tools = tuple(self.deferred.values()) or tuple(filter(is_mcp_tool, self.sent.values()))
        index = self._index
        if index is None or index.tools != tools:
            index = self._index = await in_thread(ToolIndex, tools)
        return index.search(query, most)

    def fit(self, tools: Sequence[Tool]) -> list[Tool]:
        """The first of these tools, as many as the next request has room for, but at least one."""
        room, fitting = token_budget(self._window), list[Tool]()
        for tool in tools:
            room -= estimate_tokens(tool) if tool.name in self.deferred else 0
            if room < 0 and fitting:
                break
            fitting.append(tool)
        return fitting

    def starting(self) -> Sequence[str]:
        """The servers whose tools are not known yet."""
        return self._servers.connecting()

    async def _refresh(self) -> None:
        """Wait a while for servers that are still starting, and list the tools again."""
        if self._servers.connecting():
            await self._servers.wait(SERVER_WAIT_SECONDS)
        await self.offering()

    def _definition(self, tool: Tool, description: str) -> ToolSpec:
        """The same object while nothing has changed, so that its encoded bytes are reused from request to request."""
        definition = self._definitions.get(tool)
        if definition is None or definition.description != description:
            definition = self._definitions[tool] = ToolSpec(tool.name, description, tool.schema)
        return definition

    def _mark_deferred(self, availability: ToolAvailability) -> ToolAvailability:
        tool = availability.tool
        if self.deferred.get(tool.name) is not tool:
            return availability
        return ToolAvailability(tool, True, "deferred: sent by name, ToolSearch loads it")


class Activations:
    """The activated tools of one workspace: `workspace.services.activations`. Names are only ever appended."""

    def __init__(self, on_change: Callable[[tuple[str, ...]], None] | None = None) -> None:
        self._names: dict[str, None] = {}
        self._on_change = on_change

    @property
    def names(self) -> tuple[str, ...]:
        """Oldest first."""
        return tuple(self._names)

    def activate(self, names: Iterable[str]) -> tuple[str, ...]:
        """Activate tools; returns, and reports to `on_change`, those that were not active before."""
        new = tuple(name for name in dict.fromkeys(names) if name not in self._names)
        self._names.update(dict.fromkeys(new))
        if new and self._on_change is not None:
            self._on_change(new)
        return new

    def restore(self, names: Iterable[str]) -> None:
        """Restore the activations of an earlier run without reporting them."""
        self._names.update(dict.fromkeys(names))


class ActivatingCatalog(Catalog):
    """A view of a catalog for calls: finding a deferred tool activates it."""

    def __init__(self, catalog: Catalog, toolset: Toolset) -> None:
        super().__init__()
        self._catalog = catalog
        self._toolset = toolset

    def offered_names(self) -> list[str]:
        return self._toolset.offered_names()

    def why_closed(self, name: str) -> str | None:
        return self._toolset.why_closed(name)

    def find(self, name: str) -> Tool | None:
        if self._toolset.deferred:
            self._toolset.activate_called(name)
        return self._catalog.find(name)

    def __iter__(self) -> Iterator[str]:
        return iter(self._catalog)

    def __len__(self) -> int:
        return len(self._catalog)

    def __contains__(self, name: object) -> bool:
        return name in self._catalog
