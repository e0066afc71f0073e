"""Permission questions on a plain terminal: what will run, why it asks, and three answers."""

from __future__ import annotations

import json
import sys
from collections.abc import Awaitable, Callable, Iterator

from wieldy.approval import Ask
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Answer, Question
from wieldy.core.threads import in_thread
from wieldy.permissions.visible import visible

MOST_SHOWN = 4_000


class Unanswered(Exception):
    """The person left the question: Ctrl-C, Ctrl-D, or the end of the terminal."""


def terminal_ask() -> Ask | None:
    """A callback that asks at the terminal, or None where nobody sits."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _ask


async def _ask(question: Question) -> Answer:
    return await put(question, typed, by_hand=True)


async def typed(prompt: str) -> str:
    """A line from the terminal, which nothing else waits for meanwhile."""
    return await in_thread(_line, prompt)


async def put(question: Question, line: Callable[[str], Awaitable[str]], *, by_hand: bool = False) -> Answer:
    """Show a question and ask with `line` until the answer is one. A question that is left is a no without words.

    Whoever calls a tool `by_hand` is not asked what to do instead.
    """
    plan, decision = question.plan, question.decision
    rules = decision.suggestions
    choices = "  [y] yes   " + (f"[a] yes, and always allow {', '.join(rules)}   " if rules else "") + "[n] no"
    who = [f"the {question.agent} asks:"] if question.agent else []
    print("\n".join(["", *who, *asked_about(plan), f"  {visible(decision.why)}", choices]), file=sys.stderr)
    try:
        return await _answer(rules, line, by_hand)
    except Unanswered:
        return Answer(False)


async def _answer(rules: tuple[str, ...], line: Callable[[str], Awaitable[str]], by_hand: bool) -> Answer:
    while True:
        match (await line("  > ")).strip().lower():
            case "y" | "yes":
                return Answer(True)
            case "a" | "always" if rules:
                return Answer(True, remember=rules)
            case "n" | "no" | "":
                instead = "" if by_hand else await line("  what should be done instead? (Enter: nothing) ")
                return Answer(False, instead.strip())
            case _:
                print(f"  please answer {'y, a or n' if rules else 'y or n'}", file=sys.stderr)


def asked_about(plan: PlannedCall) -> Iterator[str]:
    """What a person must see to agree: the call in a line, and every text of it that the line does not hold whole."""
    line = visible(plan.tool.show_use(plan.input))
    yield line
    for name, value in plan.input.items():
        if isinstance(value, bool | int | float | None):
            continue
        text = visible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))
        if text in line:
            continue
        # Of what is only written one may see a part; what is run must be seen to its last character.
        shown = text if name == "command" or len(text) <= MOST_SHOWN else text[:MOST_SHOWN]
        yield f"  {name}:"
        yield from (f"    {each}" for each in shown.split("\n"))
        if len(shown) < len(text):
            yield f"    … {len(text) - len(shown)} more characters"


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    if not (said := sys.stdin.readline()):
        print(file=sys.stderr)
        raise Unanswered
    return said
