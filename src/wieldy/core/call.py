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


CallLike: TypeAlias = ToolCall | Mapping[str, Any] | tuple[str, RawInput]


def as_tool_call(call: CallLike, new_id: Callable[[], str]) -> ToolCall:
    """A call as a program writes it: a `ToolCall`, a mapping with `name`, `input` and perhaps `id`, or name and input."""
    if isinstance(call, ToolCall):
        return call
    if isinstance(call, Mapping):
        return ToolCall(call.get("id") or new_id(), call["name"], call.get("input", {}))
    name, input = call
    return ToolCall(new_id(), name, input)


class BoundCall(Struct, frozen=True):
    """A call with its tool and valid input. `input` is JSON under canonical names, `args` are Python values."""

    call: ToolCall
    tool: Tool
    input: dict[str, Any]
    args: Any
    notes: tuple[str, ...] = ()


class PlannedCall(Struct, frozen=True):
    """Canonical input with known effects. `resolved_paths` maps each path to its realpath at that moment."""

    call: ToolCall
    tool: Tool
    input: dict[str, Any]
    args: Any
    effects: Effects
    notes: tuple[str, ...] = ()
    resolved_paths: Mapping[str, str] = field(default_factory=dict)


class ClearedCall(Struct, frozen=True):
    """A call that may run, and the decision that allowed it."""

    plan: PlannedCall
    decision: Decision
