"""The model's JSON → Python values the tool can take, or a refusal that explains every wrong field."""

from __future__ import annotations

from typing import Any

from wieldy.core.call import BoundCall, ToolCall
from wieldy.core.failure import Refusal
from wieldy.core.tool import Tool
from wieldy.schema.mend import Unreadable, read_object
from wieldy.schema.parameters import Parameters
from wieldy.schema.problem import Misfit
from wieldy.schema.strict import TooDeep, is_too_deep


def bind(call: ToolCall, tool: Tool) -> BoundCall:
    """Read the input, give its fields their canonical names, and check it."""
    if not call.complete:
        raise _cut_off(tool)
    value, notes = _read(call, tool)
    parameters = tool.parameters
    if parameters.aliases:
        value = _canonical(value, parameters)
    try:
        return BoundCall(call, tool, value, parameters.accept(value), notes)
    except Misfit as misfit:
        return _second_try(call, tool, value, notes, misfit)


def _read(call: ToolCall, tool: Tool) -> tuple[dict[str, Any], tuple[str, ...]]:
    raw = call.input
    if isinstance(raw, dict):
        # From a program: its strings may hold names of files that are no Unicode, which JSON could not.
        if _is_nested(raw) and is_too_deep(raw):
            raise Refusal("schema", f"InputValidationError: {tool.name} was not run. {TooDeep()} Send the call again.")
        return raw, ()
    try:
        read = read_object(raw)
    except Unreadable as unreadable:
        if unreadable.cut_off:
            raise _cut_off(tool) from None
        advice = f"InputValidationError: {tool.name} was not run. {unreadable.reason} Send the call again."
        raise Refusal("schema", advice) from None
    return read.value, read.notes


def _is_nested(input: dict[str, Any]) -> bool:
    for item in input.values():  # noqa: SIM110 - `any` takes three times as long for the few values there are
        if type(item) in (dict, list):
            return True
    return False


def _cut_off(tool: Tool) -> Refusal:
    return Refusal(
        "schema",
        f"The input of `{tool.name}` was cut off before it was complete, so the call was not run. "
        "Send it again with less in it, for example in several smaller calls.",
    )


def _canonical(value: dict[str, Any], parameters: Parameters) -> dict[str, Any]:
    aliases = parameters.aliases
    if not any(key in aliases for key in value):
        return value
    renamed: dict[str, Any] = {}
    for key, item in value.items():
        canonical = aliases.get(key, key)
        # Where the model sent both spellings the alias stays, and is reported as a field too many.
        renamed[key if canonical in value and canonical != key else canonical] = item
    return renamed


def _second_try(call: ToolCall, tool: Tool, value: dict[str, Any], notes: tuple[str, ...], misfit: Misfit) -> BoundCall:
    from wieldy.schema.coerce import coerce
    from wieldy.schema.explain import explain

    coerced, how = coerce(tool.schema, value)
    try:
        if how:
            return BoundCall(call, tool, coerced, tool.parameters.accept(coerced), (*notes, *how))
    except Misfit as still:
        misfit = still
    advice = explain(tool.name, misfit.problems, tool.schema)
    data = [{"field": p.path, "expected": p.expected, "got": p.got} for p in misfit.problems]
    raise Refusal("schema", advice, data=data) from None
