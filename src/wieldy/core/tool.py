"""The `Tool` interface: name, description, input, effects, and how it runs."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Literal, TypeAlias

from msgspec import Struct

from wieldy.core.effects import NO_EFFECTS, UNKNOWN_EFFECTS, Effects, Fetches, is_lasting
from wieldy.core.outcome import Block, Content, Text, ToolResult
from wieldy.core.text import plural, truncate_line

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    Deps = TypeVar("Deps", default=Any)  # Python 3.13 has defaults of its own

    from wieldy.core.call import PlannedCall
    from wieldy.core.decision import Judge
    from wieldy.core.events import Event
    from wieldy.core.schema.parameters import Parameters
    from wieldy.core.supervise import Abort
    from wieldy.core.workspace import Workspace
else:
    from typing import TypeVar

    Deps = TypeVar("Deps")

DEFAULT_MAX_RESULT_CHARS = 50_000

RiskLevel: TypeAlias = Literal["safe", "confirm", "dangerous", "forbidden"]
LEVELS: tuple[RiskLevel, ...] = ("safe", "confirm", "dangerous", "forbidden")

RuleFamily: TypeAlias = Literal["command", "read", "edit", "domain", "choice", "bare"]
"""What the specifier of a permission rule for a built-in tool is.

`command` a command, `read` and `edit` a path, written for the tools of that name, `domain` a host, `choice` a pattern over the
main field, `bare` nothing: the tool takes no specifier. A tool of no family takes `parameter:value` only.
"""
RULE_FAMILIES: tuple[RuleFamily, ...] = ("command", "read", "edit", "domain", "choice", "bare")

ToolGroup: TypeAlias = Literal["agents", "person"]
"""Tools that need more than a workspace: a model for `agents`, and for `person` the one at the session, not at a subagent."""
TOOL_GROUPS: tuple[ToolGroup, ...] = ("agents", "person")

Replay: TypeAlias = Literal["safe", "ask", "never", "journal"]
"""What becomes of a call that had started when the process died: it is made again, the person is asked, or neither.

`journal`: it changes files through the journal alone, which knows what happened.
"""
REPLAYS: tuple[Replay, ...] = ("safe", "ask", "never", "journal")


class Progress(Struct, frozen=True):
    """Progress of a running tool, shown to people and never sent to the model."""

    text: str
    data: Any = None


class Output(Struct, frozen=True):
    """The result of a tool: what the model reads, and structured data for the caller."""

    content: str | Block | Content
    data: Any = None
    is_error: bool = False

    @property
    def blocks(self) -> Content:
        if isinstance(self.content, str):
            return (Text(self.content),)
        return self.content if isinstance(self.content, tuple) else (self.content,)


class Doubt(Struct, frozen=True):
    """The result of a tool's own check that asks the person to decide."""

    why: str


class Options(Struct, frozen=True):
    """What the surrounding session runs with.

    `tools` are offered to the model, `commands` are the skills a person can call, `fork` counts the forks since the first
    session.
    """

    tools: tuple[str, ...] = ()
    commands: tuple[str, ...] = ()
    model: str | None = None
    fork: int = 0
    thinking_budget: int | None = None


class ToolContext(Struct, Generic[Deps], eq=False):
    """What a running tool may use. There are no globals: everything it needs is here. `plan` is the call as it was judged.

    `deps` is what the program gave as `Toolbox(deps=…)` or `Session(deps=…)`: annotate `ToolContext[YourDeps]` to have its type.
    """

    call_id: str
    workspace: Workspace
    abort: Abort
    emit: Callable[[Event], None]
    judge: Judge
    message_id: str | None = None
    siblings: Sequence[str] = ()
    read_options: Callable[[], Options] = Options
    plan: PlannedCall | None = None
    deps: Deps = None  # type: ignore[assignment]

    @property
    def options(self) -> Options:
        """The options of the session as they are now."""
        return self.read_options()

    @property
    def idempotency_key(self) -> str:
        """A key that this call keeps when it is made again after a crash, for services that do the same request once."""
        return f"{self.workspace.session_dir.name}:{self.call_id}"

    @property
    def cwd(self) -> str:
        """The folder that the call was judged for; the current one of the session may be another by now."""
        return self.workspace.cwd if self.plan is None else self.plan.cwd

    @property
    def resolved_paths(self) -> Mapping[str, str]:
        """The realpaths that were judged for the paths of this call."""
        return {} if self.plan is None else self.plan.resolved_paths

    def resolved(self, path: str) -> str:
        """Return the realpath that was judged for a path of this call: the only file a tool may open for it."""
        return self.resolved_paths.get(path) or self.workspace.files.realpath(path)


class Tool:
    """A tool. Most are made by `@tool` or `Tool.from_schema`; subclass it when you need more.

    `input` is always the call's JSON under canonical names; `args` are the Python values made from it.
    """

    name: str = ""
    title: str = ""
    description: str = ""
    prompt: str = ""
    input_type: ClassVar[type | None] = None
    input_schema: Mapping[str, Any] | None = None
    aliases: Mapping[str, str] = {}
    read_only: bool = False
    deferred: bool = False
    paths: tuple[str, ...] = ()
    max_result_chars: int = DEFAULT_MAX_RESULT_CHARS
    timeout: float | None = None
    # Whether a call whose paths are all absolute depends on the current folder nevertheless.
    uses_folder: bool = True
    replay: Replay | None = None
    # `run` refuses all that `check` refuses: a call that nobody is asked about need not be checked before.
    rechecks_on_run: bool = False
    # The risk of a call where the settings name none; None derives it from `needs_permission`.
    level: RiskLevel | None = None
    rules: RuleFamily | None = None
    group: ToolGroup | None = None
    # The field that plain text stands for: of the parameters, the first unless another is declared.
    main_field: str = ""
    # What the lines of a result are, such as `line` or `path`: a person is shown their number instead.
    counted: str = ""
    # An input that every call fails with, to test what people and models are told of it.
    fails: Mapping[str, Any] | None = None
    # Whether `invalidate` must be called before and after every call that may change something.
    caches_results: bool = False

    @property
    def unwrapped(self) -> Tool:
        """The tool itself, without the wrappers that limit, cache or log its calls."""
        return self

    @property
    def unknown_effects(self) -> str:
        """Why a person is asked where the effects of a call are unknown."""
        return "nobody can say what it touches"

    @cached_property
    def parameters(self) -> Parameters:
        """The input this tool takes; a raw schema wins over a typed model."""
        from wieldy.core.schema.parameters import Parameters

        if self.input_schema is not None:
            return Parameters.from_schema(self.input_schema, aliases=self.aliases)
        if self.input_type is not None:
            return Parameters.from_type(self.input_type, aliases=self.aliases)
        raise TypeError(f"{type(self).__name__} declares neither input_schema nor input_type")

    @property
    def schema(self) -> dict[str, Any]:
        """The JSON Schema that is sent to a model."""
        return self.parameters.schema

    async def describe(self, workspace: Workspace, input: Mapping[str, Any] | None = None) -> str:
        """What the model reads to decide whether and how to call this tool."""
        return self.description

    @property
    def deps_type(self) -> type | None:
        """The class that `ctx.deps` must be of, if the tool says so."""
        return None

    @property
    def has_describe(self) -> bool:
        """Whether the tool overrides `describe`."""
        return type(self).describe is not Tool.describe

    def enabled(self, workspace: Workspace) -> bool | str | Awaitable[bool | str]:
        """Whether the tool can be offered and called now; a string says why not. May be async, if the answer takes time."""
        return True

    @cached_property
    def has_enabled_check(self) -> bool:
        """Whether the tool overrides `enabled`."""
        return type(self).enabled is not Tool.enabled

    def translate(self, input: dict[str, Any]) -> dict[str, Any]:
        """Return an input that does not fit with fields of other agents' tools of this kind as ours, or left out."""
        return input

    def normalize(self, input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
        """Return the canonical form of an input."""
        return input

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """What a call with this input touches."""
        return NO_EFFECTS if self.read_only else UNKNOWN_EFFECTS

    def replay_of(self, effects: Effects) -> Replay:
        """What becomes of a call with these effects that had started when the process died.

        A tool that does not say so: a call that changes nothing is safe, any other is never made again unasked.
        """
        changes = any(map(is_lasting, effects)) or (not self.read_only and any(isinstance(e, Fetches) for e in effects))
        if self.replay is None or (self.replay == "journal" and not changes):
            return "never" if changes else "safe"
        return self.replay

    def concurrency_safe(self, input: Mapping[str, Any]) -> bool | None:
        """Whether the call may run beside others; None derives it from the effects."""
        return None

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        """Whether the call must pass the permission engine's ask step."""
        return not self.read_only or any(effect.opaque for effect in effects)

    def destructive(self, input: Mapping[str, Any]) -> bool:
        """Whether undo cannot take the call back."""
        return False

    @cached_property
    def has_check(self) -> bool:
        """Whether the tool overrides `check`."""
        return type(self).check is not Tool.check

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        """Check a call before permission is asked. Raise `Refusal("check", …)`, or return a `Doubt` to ask the person."""
        return None

    def invalidate(self, effects: Effects) -> None:
        """Forget results that depend on what these effects change."""

    def run(self, args: Any, ctx: ToolContext) -> AsyncIterator[Progress | Output]:
        """Yield any number of `Progress`, then exactly one `Output`."""
        raise NotImplementedError

    def show_use(self, input: Mapping[str, Any]) -> str:
        """One line for people: what is being called."""
        arguments = ", ".join(f"{key}={_short(value)}" for key, value in input.items())
        return f"{self.title or self.name}({arguments})"

    def show_progress(self, progress: Progress) -> str:
        """One line for people: how far it is."""
        return progress.text

    def show_result(self, result: ToolResult) -> str:
        """A few lines for people: the result."""
        lines = result.person_text.splitlines()
        more = f"\n… {plural(len(lines) - 5, 'more line')}" if len(lines) > 5 else ""
        return "\n".join(lines[:5]) + more

    def show_rejection(self, input: Mapping[str, Any], why: str) -> str:
        """One line for people: what was not run, and why."""
        return f"{self.show_use(input)} was not run: {why}"

    @staticmethod
    def from_schema(
        name: str,
        description: str,
        input_schema: Mapping[str, Any],
        handler: Callable[..., Any],
        **declared: Any,
    ) -> Tool:
        """Make a tool of a raw JSON Schema and a handler, which takes the input as one dict and optionally a context."""
        from wieldy.core.tool_decorator import schema_tool

        return schema_tool(name, description, input_schema, handler, **declared)


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)
    return truncate_line(text, 60)


def why_disabled(answer: object) -> str | None:
    """What an answer of `Tool.enabled` says against the tool, or None. An exception of the check is a no."""
    if isinstance(answer, Exception):
        return f"its self-check failed: {' '.join(str(answer).split()) or type(answer).__name__}"
    return None if answer is True else str(answer or "it is not available here")


async def maybe_await(value: Any) -> Any:
    """Await a value if it is awaitable."""
    return await value if isinstance(value, Awaitable) else value


Handler = Callable[..., Any | Awaitable[Any] | AsyncIterator[Any]]
