"""The contract with hooks: what each way to end means for each event. Run as a program, it prints the tables of the docs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.policy.hooks.events import HOOK_EVENTS, HookEvent, ToolHookEvent
from wieldy.shell.running.program_output import ProgramOutput

HookMeaning: TypeAlias = Literal["go on", "block", "allow", "ask", "add text", "show", "by on_error"]


class HookExit(Struct, frozen=True):
    """One way to end, and its meaning: for events that can be blocked, for others, and for those that take text."""

    name: str
    output: ProgramOutput
    blockable: HookMeaning
    otherwise: HookMeaning
    takes_text: HookMeaning | None = None


def _json(code: int, decision: str) -> ProgramOutput:
    return ProgramOutput(code, f'{{"decision": "{decision}", "reason": "said so"}}')


def _failure(name: str, output: ProgramOutput) -> HookExit:
    return HookExit(name, output, "by on_error", "by on_error")


NO_SCRIPT = "python3: can't open file '/project/guard.sh': [Errno 2] No such file or directory"
TEXT_THEN_JSON = ProgramOutput(0, 'checking\n{"decision": "block"}')
EXITS = (
    HookExit("exit 0, nothing printed", ProgramOutput(0), "go on", "go on"),
    HookExit("exit 0, plain text printed", ProgramOutput(0, "some text"), "go on", "go on", "add text"),
    HookExit("exit 0, JSON that denies or blocks", _json(0, "block"), "block", "block"),
    HookExit("exit 0, lines of text and then JSON that denies or blocks", TEXT_THEN_JSON, "block", "block"),
    HookExit("exit 0, JSON that allows", _json(0, "approve"), "allow", "allow"),
    HookExit("exit 0, JSON that asks", _json(0, "ask"), "ask", "ask"),
    _failure("exit 0, JSON with an unknown decision", _json(0, "maybe")),
    _failure("exit 0, output that begins like JSON and is not", ProgramOutput(0, "{oops")),
    HookExit("exit 1 (or 3 to 125), no JSON", ProgramOutput(1, "", "careful"), "show", "show"),
    HookExit("exit 1 (or 3 to 125), JSON that denies or blocks", _json(1, "block"), "block", "block"),
    HookExit("exit 2, reason on stderr", ProgramOutput(2, "", "not so"), "block", "show"),
    HookExit("exit 2, JSON that denies or blocks", _json(2, "block"), "block", "show"),
    HookExit("exit 2, JSON that allows", _json(2, "approve"), "block", "show"),
    _failure("exit 2 from an interpreter that finds no script", ProgramOutput(2, "", NO_SCRIPT)),
    _failure("exit 126 or 127: the script is missing or not executable", ProgramOutput(127, "", "not found")),
    _failure("killed by a signal", ProgramOutput(-9)),
    _failure("took longer than its timeout (its whole process tree is ended)", ProgramOutput(None, failure="was late")),
    _failure("could not be started at all", ProgramOutput(None, failure="could not start")),
)


def meaning(exit: HookExit, event: str) -> HookMeaning:
    kind = HOOK_EVENTS[event]
    if kind.takes_text and exit.takes_text is not None:
        return exit.takes_text
    return exit.blockable if kind.can_block else exit.otherwise


def tables() -> Iterator[str]:
    """The two tables of the docs, as Markdown."""
    yield "| a hook that ends like this | for an event it can block | for any other |"
    yield "| --- | --- | --- |"
    for exit in EXITS:
        yield f"| {exit.name} | {exit.blockable} | {_otherwise(exit)} |"
    yield ""
    yield "| event | matcher is compared with | can block | default of `on_error` | fields beside the common ones |"
    yield "| --- | --- | --- | --- | --- |"
    for event, kind in HOOK_EVENTS.items():
        fields = ", ".join(f"`{name}`" for name in _own_fields(kind)) or "–"
        matched = f"`{kind.matched_on}`" if kind.matched_on else "–"
        default = "block" if kind.fails_closed else "warn"
        yield f"| `{event}` | {matched} | {'yes' if kind.can_block else 'no'} | {default} | {fields} |"


def _otherwise(exit: HookExit) -> str:
    if exit.takes_text is None:
        return exit.otherwise
    names = ", ".join(event for event, kind in HOOK_EVENTS.items() if kind.takes_text)
    return f"{exit.otherwise}; {exit.takes_text} for {names}"


def _own_fields(kind: type[HookEvent]) -> list[str]:
    own = vars(kind)["__annotations__"]
    fields = [name for name in kind.__struct_fields__ if name not in HookEvent.__struct_fields__ or name in own]
    if issubclass(kind, ToolHookEvent):
        fields.sort(key=lambda name: not name.startswith("tool_"))
    return fields


if __name__ == "__main__":
    print("\n".join(tables()))
