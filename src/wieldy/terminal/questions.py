"""Questions on a plain terminal: permission questions, and questions of tools to the user."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from wieldy.approval import Ask
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Answer, Question
from wieldy.core.invisible_text import escape_invisible
from wieldy.core.threads import in_thread
from wieldy.core.user_questions import QuestionHandler, UserAnswer, UserQuestion

MAX_SHOWN_CHARS = 4_000

# Shows a prompt and returns the typed line.
ReadLine: TypeAlias = Callable[[str], Awaitable[str]]


class NoAnswer(Exception):
    """The user left the question: Ctrl-C, Ctrl-D, or the end of the terminal."""


def is_interactive() -> bool:
    """Return whether somebody can be asked at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def permission_callback() -> Ask | None:
    """Return a callback that asks at the terminal; None without a terminal."""
    return _ask_at_terminal if is_interactive() else None


def question_handler() -> QuestionHandler | None:
    """Return a handler that asks at the terminal; None without a terminal."""
    return TerminalQuestions(read_line) if is_interactive() else None


async def _ask_at_terminal(question: Question) -> Answer:
    return await ask_permission(question, read_line, ask_instead=False)


async def read_line(prompt: str) -> str:
    """Read a line of stdin in a thread. Raises `NoAnswer` at its end."""
    return await in_thread(_read_line, prompt)


def _read_line(prompt: str) -> str:
    print(prompt, end="", file=sys.stderr, flush=True)
    if not (line := sys.stdin.readline()):
        print(file=sys.stderr)
        raise NoAnswer
    return line


async def ask_permission(question: Question, read_line: ReadLine, *, ask_instead: bool = True) -> Answer:
    """Show a permission question and read until the answer is valid. Leaving the question is a no.

    With `ask_instead`, a no is followed by the question what to do instead.
    """
    rules = question.decision.suggestions
    choices = "  [y] yes   " + (f"[a] yes, and always allow {', '.join(rules)}   " if rules else "") + "[n] no"
    agent = [f"the {question.agent} asks:"] if question.agent else []
    why = f"  {escape_invisible(question.decision.why)}"
    print("\n".join(["", *agent, *format_call(question.plan), why, choices]), file=sys.stderr)
    try:
        while True:
            match (await read_line("  > ")).strip().lower():
                case "y" | "yes":
                    return Answer(True)
                case "a" | "always" if rules:
                    return Answer(True, remember=rules)
                case "n" | "no" | "":
                    prompt = "  what should be done instead? (Enter: nothing) "
                    return Answer(False, (await read_line(prompt)).strip() if ask_instead else "")
                case _:
                    print(f"  please answer {'y, a or n' if rules else 'y or n'}", file=sys.stderr)
    except NoAnswer:
        return Answer(False)


def format_call(plan: PlannedCall) -> Iterator[str]:
    """Yield the call in one line, and every text of its input that this line does not show whole."""
    summary = escape_invisible(plan.tool.show_use(plan.input))
    yield summary
    for name, value in plan.input.items():
        if isinstance(value, bool | int | float | None):
            continue
        text = escape_invisible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))
        if text in summary:
            continue
        # Content of a file may be shortened; a command must be visible to its last character.
        shown = text if name == "command" or len(text) <= MAX_SHOWN_CHARS else text[:MAX_SHOWN_CHARS]
        yield f"  {name}:"
        yield from (f"    {line}" for line in shown.split("\n"))
        if len(shown) < len(text):
            yield f"    … {len(text) - len(shown)} more characters"


class TerminalQuestions:
    """Asks the questions of tools one after another."""

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line = read_line

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Return the answers; None where the user answered nothing, or left."""
        answers: list[UserAnswer] = []
        for question in questions:
            print(f"\n{format_question(question)}", file=sys.stderr)
            try:
                answers.append(parse_answer(await self._read_line("  > "), question))
            except NoAnswer:
                return None
        return answers if any(map(str, answers)) else None


def format_question(question: UserQuestion) -> str:
    """Return a question with its options, numbered."""
    lines = [escape_invisible(question.question)]
    lines += [f"  [{number}] {escape_invisible(option)}" for number, option in enumerate(question.options, start=1)]
    if question.options:
        lines.append(f"  ({'numbers' if question.several else 'a number'}, or your own words; Enter: no answer)")
    return "\n".join(lines)


def parse_answer(line: str, question: UserQuestion) -> UserAnswer:
    """Parse a line: options by their numbers or one by its name, else free text."""
    text, options = line.strip(), question.options
    numbers = [int(word) for word in re.findall(r"\d+", text)] if re.fullmatch(r"[\d\s,;]{1,40}", text) else []
    if numbers and all(1 <= number <= len(options) for number in numbers) and (len(numbers) == 1 or question.several):
        return UserAnswer(tuple(options[number - 1] for number in dict.fromkeys(numbers)))
    option = next((option for option in options if option.casefold() == text.casefold()), None)
    return UserAnswer((option,)) if option else UserAnswer(words=text)
