"""Permission questions on a plain terminal: what will run, why it asks, and three answers."""

from __future__ import annotations

import sys

from wieldy.approval import Ask
from wieldy.core.decision import Answer, Question
from wieldy.core.threads import in_thread


def terminal_ask() -> Ask | None:
    """A callback that asks at the terminal, or None where nobody sits."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    return _ask


async def _ask(question: Question) -> Answer:
    plan, decision = question.plan, question.decision
    lines = [f"\n{visible(plan.tool.show_use(plan.input))}", f"  {decision.why}"]
    rules = decision.suggestions
    lines.append("  [y] yes   " + (f"[a] yes, and always allow {', '.join(rules)}   " if rules else "") + "[n] no")
    print("\n".join(lines), file=sys.stderr)
    while True:
        said = (await in_thread(_line, "  > ")).strip()
        match said.lower():
            case "y" | "yes":
                return Answer(True)
            case "a" | "always" if rules:
                return Answer(True, remember=rules)
            case "n" | "no" | "":
                return Answer(
                    False, (await in_thread(_line, "  what should be done instead? (Enter: nothing) ")).strip()
                )


def _line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    return sys.stdin.readline()


def visible(text: str) -> str:
    """The text with invisible and control characters written out, so that nothing hides in a question."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"⟨U+{ord(c):04X}⟩" for c in text)
