"""One call as a value that changes type: as the model sent it, bound to a tool, planned, cleared to run."""

from __future__ import annotations

from collections.abc import Mapping
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
