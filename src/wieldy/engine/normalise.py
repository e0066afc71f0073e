"""One canonical form: absolute paths, the tool's own rewriting, and what the call will touch."""

from __future__ import annotations

from typing import Any

from wieldy.core.call import BoundCall, PlannedCall
from wieldy.core.effect import Effects, Reads, Writes
from wieldy.core.failure import Refusal
from wieldy.core.leads import real_path
from wieldy.core.tool import Tool
from wieldy.core.workspace import Workspace
from wieldy.schema.problem import Misfit

LOOKS = 10

_FILE_EFFECTS = (Reads, Writes)


def normalise(bound: BoundCall, workspace: Workspace) -> PlannedCall:
    """Plan a call. The values handed to the tool are those of the canonical input."""
    tool = bound.tool
    input = tool.normalize(bound.input, workspace)
    if tool.paths:
        input = _absolute(input, tool, workspace)
    args = bound.args if input is bound.input else _accept(tool, input)
    effects = tool.effects(input, workspace)
    return PlannedCall(bound.call, tool, input, args, effects, bound.notes, _real(effects))


def _real(effects: Effects) -> dict[str, str]:
    """Where the declared paths lead now. Judging and opening both use this, so that nothing can be swapped in between."""
    if not effects:
        return {}
    real: dict[str, str] = {}
    for effect in effects:
        if isinstance(effect, _FILE_EFFECTS) and effect.path not in real:
            real[effect.path] = _led_to(effect.path)
    return real


def _led_to(path: str) -> str:
    for _ in range(LOOKS):
        try:
            return real_path(path)
        except OSError:
            continue  # a link on the way vanished between two looks at it
    raise Refusal("normalise", f"{path} is being moved about by somebody else. Try again when that is over.")


def _absolute(input: dict[str, Any], tool: Tool, workspace: Workspace) -> dict[str, Any]:
    changed: dict[str, Any] = {}
    for name in tool.paths:
        value = input.get(name)
        if isinstance(value, str):
            absolute: Any = workspace.resolve(value)
        elif isinstance(value, list):
            absolute = [workspace.resolve(item) if isinstance(item, str) else item for item in value]
        else:
            continue
        if absolute != value:
            changed[name] = absolute
    return {**input, **changed} if changed else input


def _accept(tool: Tool, input: dict[str, Any]) -> Any:
    try:
        return tool.parameters.accept(input)
    except Misfit as misfit:
        raise RuntimeError(f"the canonical form made by {tool.name} does not fit its own schema: {misfit}") from None
