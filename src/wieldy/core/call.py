"""One call as a value that changes type: as the model sent it, bound to a tool, planned, cleared to run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from msgspec import Struct, field

if TYPE_CHECKING:
    from wieldy.core.decision import Decision
    from wieldy.core.effects import Effects
    from wieldy.core.tool import Tool

RawInput: TypeAlias = Mapping[str, Any] | bytes | str


class ToolCall(Struct, frozen=True):
    """A call as the model sent it. `complete` is false when its JSON was cut off; such a call never runs."""

    id: str
    name: str
    input: RawInput
    complete: bool = True


CallLike: TypeAlias = ToolCall | Mapping[str, Any] | tuple[str, RawInput] | object
CUSTOM_PREFIX = "custom:"  # of the ids of custom tool calls of the Responses API


def as_mapping(value: Any) -> Mapping[str, Any] | None:
    """A mapping, or an object of an SDK as one; None for something else."""
    if isinstance(value, Mapping):
        return value
    dump = getattr(value, "model_dump", None)
    if dump is None or isinstance(value, type):
        return None
    try:
        data = dump(mode="json", warnings=False)  # stream helpers of the SDKs put objects where others are declared
    except TypeError:
        data = dump()  # an object that is not of pydantic
    return data if isinstance(data, Mapping) else None


def as_tool_call(call: CallLike, new_id: Callable[[], str]) -> ToolCall:
    """A call as a program or a model's API writes it. Raises `TypeError` for what is no call.

    That is a `ToolCall`, name and input, a mapping with `name`, `input` and perhaps `id` such as a `tool_use` block, a tool
    call of Chat Completions, or a function call or custom tool call of the Responses API; or an SDK's object of these.
    """
    if isinstance(call, ToolCall):
        return call
    if isinstance(call, tuple) and len(call) == 2 and isinstance(call[0], str):
        name, input = call
        if not isinstance(input, Mapping | str | bytes):
            raise TypeError(f"the input of {name} is a dict of its fields, or JSON text, not {input!r:.100}")
        for field, value in input.items() if isinstance(input, Mapping) else ():
            if isinstance(value, bytes | bytearray | memoryview):
                raise TypeError(
                    f"`{field}` of {name} is {type(value).__name__}, which JSON does not have: decode it to a text"
                )
        return ToolCall(new_id(), name, input)
    data = as_mapping(call) or {}
    match data:
        case {"function": {"name": str(name), "arguments": input}}:
            return ToolCall(data.get("id") or new_id(), name, input or "{}")
        case {"type": "custom_tool_call", "call_id": str(id), "name": str(name), "input": str(text)}:
            return ToolCall(CUSTOM_PREFIX + id, name, {"input": text})
        case {"name": str(name), "arguments": input}:
            return ToolCall(data.get("call_id") or data.get("id") or new_id(), name, input or "{}")
        case {"name": str(name)}:
            return ToolCall(data.get("id") or new_id(), name, data.get("input", {}))
    raise TypeError(f"{call!r:.200} is no tool call: give a tool_use block, an OpenAI tool call, or (name, input)")


EDIT_FIELDS = ("old_string", "new_string", "edits")


def list_edits(input: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The replacements of an edit, where the input has that form."""
    edits = input.get("edits", [input])
    if not isinstance(edits, list):
        return []
    pairs = [(edit.get("old_string"), edit.get("new_string")) for edit in edits if isinstance(edit, Mapping)]
    is_edit = pairs and len(pairs) == len(edits) and all(isinstance(text, str) for pair in pairs for text in pair)
    return [(str(old), str(new)) for old, new in pairs] if is_edit else []


class BoundCall(Struct, frozen=True):
    """A call with its tool and valid input. `input` is JSON under canonical names, `args` are Python values."""

    call: ToolCall
    tool: Tool
    input: dict[str, Any]
    args: Any
    notes: tuple[str, ...] = ()


class PlannedCall(Struct, frozen=True):
    """Canonical input with known effects, as in the folder `cwd`.

    `resolved_paths` maps each path to its realpath at that moment. `touches` is what decides about the order of calls: the
    effects, the same for the realpaths, and whether the call depends on the folder; `safe` overrides whether it may run beside
    others.
    """

    call: ToolCall
    tool: Tool
    input: dict[str, Any]
    args: Any
    effects: Effects
    notes: tuple[str, ...] = ()
    resolved_paths: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    touches: Effects = ()
    safe: bool | None = None


class ClearedCall(Struct, frozen=True):
    """A call that may run, and the decision that allowed it."""

    plan: PlannedCall
    decision: Decision
