"""The contract with hooks as data: for each way a hook can end, what it means. The docs show it, a test holds the code to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.hooks.command import HookOutput
from wieldy.hooks.events import HOOK_EVENTS, HookEvent, ToolHookEvent

HookMeaning: TypeAlias = Literal["go on", "block", "allow", "ask", "add text", "show", "by on_error"]


class HookExit(Struct, frozen=True):
    """One way to end, and its meaning: at moments that can be blocked, at those that cannot, at those that take text."""

    name: str
    raw: HookOutput
    blockable: HookMeaning
    otherwise: HookMeaning
    takes_text: HookMeaning | None = None


def _json(code: int, decision: str) -> HookOutput:
    return HookOutput(code, f'{{"decision": "{decision}", "reason": "said so"}}')


ENDINGS = (
    HookExit("exit 0, nothing printed", HookOutput(0), "go on", "go on"),
    HookExit("exit 0, plain text printed", HookOutput(0, "some text"), "go on", "go on", "add text"),
    HookExit("exit 0, JSON that denies or blocks", _json(0, "block"), "block", "block"),
    HookExit(
        "exit 0, lines of text and then JSON that denies or blocks",
        HookOutput(0, 'checking\n{"decision": "block"}'),
        "block",
        "block",
    ),
    HookExit("exit 0, JSON that allows", _json(0, "approve"), "allow", "allow"),
    HookExit("exit 0, JSON that asks", _json(0, "ask"), "ask", "ask"),
    HookExit("exit 0, JSON with a decision nobody knows", _json(0, "maybe"), "by on_error", "by on_error"),
    HookExit("exit 0, output that begins like JSON and is not", HookOutput(0, "{oops"), "by on_error", "by on_error"),
    HookExit("exit 1 (or 3 to 125), no JSON", HookOutput(1, "", "careful"), "show", "show"),
    HookExit("exit 1 (or 3 to 125), JSON that denies or blocks", _json(1, "block"), "block", "block"),
    HookExit("exit 2, reason on stderr", HookOutput(2, "", "not so"), "block", "show"),
    HookExit("exit 2, JSON that denies or blocks", _json(2, "block"), "block", "show"),
    HookExit("exit 2, JSON that allows", _json(2, "approve"), "block", "show"),
    HookExit(
        "exit 2 from an interpreter that finds no script",
        HookOutput(2, "", "python3: can't open file '/project/guard.sh': [Errno 2] No such file or directory"),
        "by on_error",
        "by on_error",
    ),
    HookExit(
        "exit 126 or 127: the script is missing or not executable",
        HookOutput(127, "", "not found"),
        "by on_error",
        "by on_error",
    ),
    HookExit("killed by a signal", HookOutput(-9), "by on_error", "by on_error"),
    HookExit(
        "took longer than its timeout (its whole tree is ended)",
        HookOutput(None, trouble="was late"),
        "by on_error",
        "by on_error",
    ),
    HookExit("could not be started at all", HookOutput(None, trouble="could not start"), "by on_error", "by on_error"),
)


def meaning(ending: HookExit, event: str) -> HookMeaning:
    """What an ending means at a moment."""
    moment = HOOK_EVENTS[event]
    if moment.takes_text and ending.takes_text is not None:
        return ending.takes_text
    return ending.blockable if moment.blocks else ending.otherwise


def tables() -> Iterator[str]:
    """The two tables of the docs, as Markdown."""
    yield "| a hook that ends like this | at a moment it can block | at any other |"
    yield "| --- | --- | --- |"
    for ending in ENDINGS:
        yield f"| {ending.name} | {ending.blockable} | {_elsewhere(ending)} |"
    yield ""
    yield "| event | matcher is held against | can block | `on_error` unless set | told beside the common fields |"
    yield "| --- | --- | --- | --- | --- |"
    for event, moment in HOOK_EVENTS.items():
        own = ", ".join(f"`{name}`" for name in _own_fields(moment)) or "–"
        matched = f"`{moment.matched_on}`" if moment.matched_on else "–"
        default = "block" if moment.guards else "warn"
        yield f"| `{event}` | {matched} | {'yes' if moment.blocks else 'no'} | {default} | {own} |"


def _elsewhere(ending: HookExit) -> str:
    if ending.takes_text is None:
        return ending.otherwise
    names = ", ".join(event for event, moment in HOOK_EVENTS.items() if moment.takes_text)
    return f"{ending.otherwise}; {ending.takes_text} at {names}"


def _own_fields(moment: type[HookEvent]) -> list[str]:
    own = vars(moment)["__annotations__"]
    told = [name for name in moment.__struct_fields__ if name not in HookEvent.__struct_fields__ or name in own]
    if issubclass(moment, ToolHookEvent):
        told.sort(key=lambda name: not name.startswith("tool_"))
    return told


if __name__ == "__main__":
    print("\n".join(tables()))
