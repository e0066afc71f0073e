"""`@tool`: a typed, documented function becomes a tool."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Collection, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypedDict, Unpack, cast, get_origin, overload

from wieldy.core.effects import NO_EFFECTS, UNKNOWN_EFFECTS, Effects, Reads, Writes
from wieldy.core.errors import ToolDefinitionError
from wieldy.core.text import suggest_name
from wieldy.core.tool import (
    LEVELS,
    REPLAYS,
    RULE_FAMILIES,
    TOOL_GROUPS,
    Doubt,
    Replay,
    RiskLevel,
    RuleFamily,
    Tool,
    ToolContext,
    ToolGroup,
    maybe_await,
)
from wieldy.core.tool_names import name_problem

if TYPE_CHECKING:
    from typing_extensions import ParamSpec, TypeVar

    from wieldy.core.schema.parameters import Parameters
    from wieldy.core.workspace import Workspace

    P = ParamSpec("P", default=...)  # Python 3.13 has defaults of its own
    R = TypeVar("R", default=Any)
else:
    from typing import ParamSpec, TypeVar

    P = ParamSpec("P")
    R = TypeVar("R")

Names: TypeAlias = str | tuple[str, ...]
Flag: TypeAlias = bool | Callable[[Mapping[str, Any]], bool]


class Declared(TypedDict, total=False):
    """The options of `@tool`."""

    name: str
    title: str
    described_in: str
    description: str
    prompt: str
    read_only: bool
    reads: Names
    writes: Names
    effects: Callable[[Mapping[str, Any], Workspace], Effects]
    paths: Names
    aliases: Mapping[str, str]
    concurrency_safe: Flag
    needs_permission: Flag
    destructive: Flag
    deferred: bool
    enabled: Callable[[Workspace], Any]
    translate: Callable[[dict[str, Any]], dict[str, Any]]
    normalize: Callable[[dict[str, Any], Workspace], dict[str, Any]]
    check: Callable[[Mapping[str, Any], ToolContext], Any]
    rechecks_on_run: bool
    uses_folder: bool
    max_result_chars: int
    timeout: float
    replay: Replay
    level: RiskLevel
    rules: RuleFamily
    group: ToolGroup
    main_field: str
    counted: str
    fails: Mapping[str, Any]
    input_schema: Mapping[str, Any]


@overload
def tool(function: Callable[P, R], /) -> FunctionTool[P, R]: ...
@overload
def tool(
    *, cls: type[FunctionTool[..., Any]] | None = None, **declared: Unpack[Declared]
) -> Callable[[Callable[P, R]], FunctionTool[P, R]]: ...


def tool(
    function: Callable[..., Any] | None = None,
    /,
    *,
    cls: type[FunctionTool[..., Any]] | None = None,
    **declared: Unpack[Declared],
) -> Any:
    """Make a tool of a function.

    The function may be sync or async, return a value, or yield `Progress` and then its result. Its docstring is what the model
    reads; its annotations are the input. Say `reads="path"` or `writes="path"` for parameters that name files, `read_only=True`
    for a tool that changes nothing. A tool that declares nothing runs alone and asks first. `replay` says what becomes of a
    call that had started when the process died: `"safe"` makes it again, `"ask"` asks the person, `"never"` does neither.

    `described_in=__file__` takes description and prompt from the `.md` file beside the module; `cls` is a subclass of
    `FunctionTool` with methods of its own.
    """
    make = cls or FunctionTool
    return make(function, declared) if function is not None else lambda function: make(function, declared)


class FunctionTool(Tool, Generic[P, R]):
    """A tool made of a function. It can still be called like that function."""

    def __init__(self, function: Callable[P, R], declared: Declared) -> None:
        self.name = declared["name"] if "name" in declared else getattr(function, "__name__", "")
        for option, value in declared.items():
            if problem := _option_problem(option, value):
                raise ToolDefinitionError(f"tool `{self.name}`: {problem}")
        if problem := name_problem(self.name):
            raise ToolDefinitionError(problem)
        if module_file := declared.get("described_in"):
            description, prompt = load_description(module_file)
            declared = {**declared, "description": description, "prompt": prompt}
        self.function = function
        self.declared = declared
        self.title = declared.get("title", "")
        self.prompt = declared.get("prompt", "")
        self.reads = _names(declared.get("reads", ()))
        self.writes = _names(declared.get("writes", ()))
        self.paths = tuple(dict.fromkeys((*_names(declared.get("paths", ())), *self.reads, *self.writes)))
        self.aliases = declared.get("aliases", {})
        self.read_only = declared.get("read_only", bool(self.reads) and not self.writes)
        self.deferred = declared.get("deferred", False)
        self.max_result_chars = declared.get("max_result_chars", Tool.max_result_chars)
        self.timeout = declared.get("timeout", Tool.timeout)
        self.replay = declared.get("replay", Tool.replay)
        self.input_schema = declared.get("input_schema")
        self.has_check = "check" in declared
        self.has_enabled_check = "enabled" in declared or type(self).enabled is not FunctionTool.enabled
        self.rechecks_on_run = declared.get("rechecks_on_run", False)
        self.uses_folder = declared.get("uses_folder", True)
        self.level = declared.get("level")
        self.rules = declared.get("rules")
        self.group = declared.get("group")
        self.main_field = declared.get("main_field", "")
        self.counted = declared.get("counted", "")
        self.fails = declared.get("fails")
        self._context = _context_parameter(function)
        self._is_async = _is_async(function)
        self._check_named_parameters()

    def _check_named_parameters(self) -> None:
        """Raise `ToolDefinitionError` where an option names a parameter that does not exist."""
        named = (*self.paths, *self.aliases.values(), *filter(None, [self.main_field]))
        if named and (names := self._parameter_names(named)) is not None:
            for name in named:
                if name not in names:
                    hint = suggest_name(name, names)
                    raise ToolDefinitionError(f"tool `{self.name}` has no parameter `{name}`{hint}")

    def _parameter_names(self, named: Collection[str]) -> Collection[str] | None:
        """The names of the parameters; None if there may be others."""
        if self.input_schema is not None:
            properties = self.input_schema.get("properties")
            return properties if isinstance(properties, Mapping) else None
        from inspect import Parameter

        from wieldy.core.schema.fields import signature_of

        parameters = signature_of(self.function).parameters.values()
        if any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters):
            return None
        names = {parameter.name for parameter in parameters}
        if names.issuperset(named):
            return names
        # Perhaps a parameter that is renamed for the model: only then are the annotations evaluated now.
        return {*names, *self.parameters.schema["properties"]}

    @property
    def unknown_effects(self) -> str:
        """Names the options of `@tool` that would tell."""
        if "effects" in self.declared:
            return super().unknown_effects
        return "it declares no effects; @tool takes read_only=True, reads=…, writes=… or effects=… for that"

    @cached_property
    def deps_type(self) -> type | None:
        """The class in `ToolContext[…]` of the context parameter, if it names one."""
        if self._context is None:
            return None
        from typing import get_args, get_type_hints

        try:
            declared = get_args(get_type_hints(self.function)[self._context])
        except (NameError, TypeError, KeyError, AttributeError):
            return None  # a name that only type checkers know
        return declared[0] if declared and isinstance(declared[0], type) else None

    @cached_property
    def description(self) -> str:  # type: ignore[override]
        """The declared description, or the docstring without its sections on arguments and results."""
        if declared := self.declared.get("description"):
            return declared
        from wieldy.core.schema.fields import prose

        return prose(self.function.__doc__ or "")

    @cached_property
    def parameters(self) -> Parameters:
        """The input, from the raw schema if one was given, else from the annotations."""
        from wieldy.core.schema.parameters import Parameters

        if self.input_schema is not None:
            return Parameters.from_schema(self.input_schema, aliases=self.aliases)
        skip = (self._context,) if self._context else ()
        return Parameters.from_function(self.function, skip=skip, aliases=self.aliases)

    def run(self, args: Any, ctx: ToolContext) -> Any:
        """Call the function; a sync function runs in a thread."""
        if self._context:
            args = {**args, self._context: ctx}
        if self._is_async:
            function: Callable[..., Any] = self.function
            return function(**args)
        from wieldy.core.threads import iterate_in_threads

        return iterate_in_threads(self.function, args)

    def effects(self, input: Mapping[str, Any], workspace: Workspace) -> Effects:
        """The declared effects; a tool that declared none touches nothing if it is read-only, and anything if not."""
        if declared := self.declared.get("effects"):
            return declared(input, workspace)
        if not self.reads and not self.writes:
            return NO_EFFECTS if self.read_only else UNKNOWN_EFFECTS
        read = [Reads(path) for name in self.reads for path in _paths(input.get(name))]
        return (*read, *[Writes(path) for name in self.writes for path in _paths(input.get(name))])

    def translate(self, input: dict[str, Any]) -> dict[str, Any]:
        declared = self.declared.get("translate")
        return declared(input) if declared else input

    def normalize(self, input: dict[str, Any], workspace: Workspace) -> dict[str, Any]:
        declared = self.declared.get("normalize")
        return declared(input, workspace) if declared else input

    def concurrency_safe(self, input: Mapping[str, Any]) -> bool | None:
        return _flag(self.declared.get("concurrency_safe"), input)

    def needs_permission(self, input: Mapping[str, Any], effects: Effects) -> bool:
        declared = _flag(self.declared.get("needs_permission"), input)
        if declared is None:
            return not self.read_only or any(effect.opaque for effect in effects)
        return declared

    def destructive(self, input: Mapping[str, Any]) -> bool:
        return bool(_flag(self.declared.get("destructive"), input))

    def enabled(self, workspace: Workspace) -> bool | str | Awaitable[bool | str]:
        declared = self.declared.get("enabled")
        return True if declared is None else cast("bool | str | Awaitable[bool | str]", declared(workspace))

    async def check(self, input: Mapping[str, Any], ctx: ToolContext) -> Doubt | None:
        declared = self.declared.get("check")
        return None if declared is None else await maybe_await(declared(input, ctx))

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function directly, without a toolbox."""
        return self.function(*args, **kwargs)


def schema_tool(
    name: str,
    description: str,
    input_schema: Mapping[str, Any],
    handler: Callable[..., Any],
    **declared: Any,
) -> Tool:
    """Make a tool of a raw schema; see `Tool.from_schema`."""
    return HandlerTool(handler, {**declared, "name": name, "description": description, "input_schema": input_schema})  # type: ignore[typeddict-item]


class HandlerTool(FunctionTool):
    """A tool whose function takes the whole input as one dict."""

    def run(self, args: Any, ctx: ToolContext) -> Any:
        """Call the handler with the input, and with the context where a parameter is annotated as such."""
        context = {self._context: ctx} if self._context else {}
        if self._is_async:
            return self.function(args, **context)
        from wieldy.core.threads import iterate_in_threads

        return iterate_in_threads(self.function, context, args)


def load_description(module_file: str) -> tuple[str, str]:
    """Read the `.md` beside a tool's module: the first paragraph is its description, the rest its prompt."""
    text = Path(module_file).with_suffix(".md").read_text(encoding="utf-8").strip()
    description, _, prompt = text.partition("\n\n")
    return " ".join(description.split()), prompt.strip()


_FLAGS = frozenset({"concurrency_safe", "needs_permission", "destructive"})
_CHOICES: Mapping[str, tuple[str, ...]] = {
    "replay": REPLAYS,
    "level": LEVELS,
    "rules": RULE_FAMILIES,
    "group": TOOL_GROUPS,
}
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("name", "title", "described_in", "description", "prompt", "main_field", "counted"), (str,)),
    **dict.fromkeys(("reads", "writes", "paths"), (str, tuple, list)),
    **dict.fromkeys(("aliases", "input_schema", "fails"), (Mapping,)),
    **dict.fromkeys(("read_only", "deferred", "rechecks_on_run", "uses_folder"), (bool,)),
}


def _option_problem(option: str, value: Any) -> str | None:
    """What is wrong with an option of `@tool`, or None."""
    if option not in Declared.__annotations__:
        return f"`{option}` is not an option of @tool{suggest_name(option, Declared.__annotations__)}"
    if (choices := _CHOICES.get(option)) is not None:
        return None if value in choices else f"`{option}` is {', '.join(map(repr, choices))}, not {value!r}"
    if option in _TYPES:
        return None if isinstance(value, _TYPES[option]) else f"`{option}` cannot be {value!r}"
    if option in _FLAGS:
        return None if isinstance(value, bool) or callable(value) else f"`{option}` is True, False or a function"
    if option in ("timeout", "max_result_chars"):
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and value > 0
        return None if is_number else f"`{option}` is a number above 0, not {value!r}"
    return None if callable(value) else f"`{option}` is a function, not {value!r}"


def drop_fields(input: dict[str, Any], *names: str) -> dict[str, Any]:
    """Return an input without some fields, for `translate`."""
    return {key: item for key, item in input.items() if key not in names}


def _names(names: Names) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _paths(value: Any) -> tuple[str, ...]:
    if type(value) is str:
        return (value,)
    if value is None:
        return ()
    return tuple(map(str, value)) if isinstance(value, list) else (str(value),)


_CONTEXT = re.compile(r"(?:\w+\.)*ToolContext(?:\[.*\])?", re.DOTALL)


def _flag(declared: Flag | None, input: Mapping[str, Any]) -> bool | None:
    return declared(input) if callable(declared) else declared


def _is_async(function: Callable[..., Any]) -> bool:
    from inspect import isasyncgenfunction, iscoroutinefunction

    return iscoroutinefunction(function) or isasyncgenfunction(function)


def _annotations(function: Callable[..., Any]) -> dict[str, Any] | None:
    """The annotations, None for what has none. On Python 3.14, names that do not exist yet stay references."""
    try:
        annotations: dict[str, Any] | None = getattr(function, "__annotations__", None)
    except NameError:
        if sys.version_info >= (3, 14):
            from annotationlib import Format, get_annotations

            return get_annotations(function, format=Format.FORWARDREF)
        raise
    return annotations


def _context_parameter(function: Callable[..., Any]) -> str | None:
    annotations = _annotations(function)
    if annotations is None:
        raise ToolDefinitionError(f"@tool needs a function, not {type(function).__name__}")
    for name, declared in annotations.items():
        annotation = getattr(declared, "__forward_arg__", declared)
        if get_origin(annotation) is ToolContext or annotation is ToolContext:
            return name
        if isinstance(annotation, str) and _CONTEXT.fullmatch(annotation):
            return name
    return None
