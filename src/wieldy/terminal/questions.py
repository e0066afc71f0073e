"""Questions on a plain terminal: permission questions, and questions of tools to the user."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from wieldy import console
from wieldy.approval import Ask
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Answer, Question
from wieldy.core.invisible_text import escape_invisible, escape_to_line
from wieldy.core.threads import in_thread
from wieldy.core.truncate import truncate
from wieldy.core.user_questions import QuestionHandler, UserAnswer, UserQuestion

MAX_SHOWN_CHARS = 4_000
MAX_SUMMARY_CHARS = 200
ROWS_BELOW = 8
"""Rows of a question below the input: summary, reason, choices, prompt."""
GUTTER = "  │ "
"""Before every line of foreign text that may have line breaks, so that none can pass for a line of the question."""

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


def discard_typed_ahead() -> None:
    """Drop keys that were typed before a question appeared: they are no answer to it."""
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _read_line(prompt: str) -> str:
    discard_typed_ahead()
    line = console.read_line(prompt)
    if line is None:
        raise NoAnswer
    return line


async def ask_permission(question: Question, read_line: ReadLine, *, ask_instead: bool = True) -> Answer:
    """Show a permission question and read until the answer is valid. Leaving the question is a no.

    With `ask_instead`, a no is followed by the question what to do instead.
    """
    rules = question.decision.suggestions
    console.write_error("\n".join(["", *format_permission_question(question)]))
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
                    console.write_error(f"  please answer {'y, a or n' if rules else 'y or n'}")
    except NoAnswer:
        return Answer(False)


def format_permission_question(question: Question) -> Iterator[str]:
    """Yield the lines of a permission question. Its last lines name the call, whatever stands above them."""
    rules = question.decision.suggestions
    always = f"[a] yes, and always allow {', '.join(map(escape_to_line, rules))}   " if rules else ""
    if question.agent:
        yield f"the {escape_to_line(question.agent)} asks:"
    yield from format_call(question.plan, shutil.get_terminal_size())
    yield f"  {escape_to_line(question.decision.why)}"
    yield f"  [y] yes   {always}[n] no"


def format_call(plan: PlannedCall, size: os.terminal_size) -> Iterator[str]:
    """Yield the call in one line, and every text of its input that this line does not show whole.

    Where the whole would push its beginning off the screen, that line comes last.
    """
    whole = escape_to_line(plan.tool.show_use(plan.input))
    summary = truncate(whole, MAX_SUMMARY_CHARS)
    details = list(_format_input(plan, summary))
    rows = sum(1 + len(line) // max(size.columns, 1) for line in details)
    if rows + ROWS_BELOW <= size.lines:
        yield summary
        yield from details
    else:
        yield from details
        yield f"{summary} (all of it is above: {rows} rows)"


def _format_input(plan: PlannedCall, summary: str) -> Iterator[str]:
    for name, value in plan.input.items():
        if isinstance(value, bool | int | float | None):
            continue
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1)
        if escape_to_line(text) in summary and "\n" not in text:
            continue
        # Content of a file may be shortened; a command must be visible to its last character.
        shown = text if name == "command" else text[:MAX_SHOWN_CHARS]
        yield f"  {escape_to_line(name)}:"
        yield from (GUTTER + line for line in _lines(shown))
        if len(shown) < len(text):
            yield f"{GUTTER}… {len(text) - len(shown)} more characters"


def _lines(text: str) -> list[str]:
    return escape_invisible(text).split("\n")


class TerminalQuestions:
    """Asks the questions of tools one after another."""

    def __init__(self, read_line: ReadLine) -> None:
        self._read_line = read_line

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """Return the answers; None where the user answered nothing, or left."""
        answers: list[UserAnswer] = []
        for question in questions:
            console.write_error(f"\n{format_question(question)}")
            try:
                answers.append(parse_answer(await self._read_line("  > "), question))
            except NoAnswer:
                return None
        return answers if any(map(str, answers)) else None


def format_question(question: UserQuestion) -> str:
    """Return a question with its options, numbered."""
    lines = [GUTTER + line if number else line for number, line in enumerate(_lines(question.question))]
    lines += [f"  [{number}] {escape_to_line(option)}" for number, option in enumerate(question.options, start=1)]
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
