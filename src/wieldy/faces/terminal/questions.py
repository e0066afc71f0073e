"""Questions on a plain terminal: permission questions, and questions of tools to the user."""

from __future__ import annotations

import os
import re
import shutil
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import TypeAlias

from wieldy.core import console
from wieldy.core.decision import Answer, GrantScope, Question
from wieldy.core.invisible_text import escape_invisible, escape_to_line
from wieldy.core.threads import in_thread
from wieldy.core.truncate import truncate
from wieldy.core.user_questions import QuestionHandler, UserAnswer, UserQuestion
from wieldy.engine.approval import Ask
from wieldy.faces.terminal.calls import CallFormatter
from wieldy.faces.terminal.inquiry import Inquiry, permission_inquiry
from wieldy.faces.terminal.text import row_text

MAX_SUMMARY_CHARS = 200
ROWS_BELOW = 8
"""Rows of a question below the input: summary, reason, choices, prompt."""
GUTTER = "  │ "
"""Before every line of foreign text that may have line breaks, so that none can pass for a line of the question."""

SCOPE_KEYS: Mapping[str, GrantScope] = {"a": "project", "s": "session", "e": "user"}

# Shows a prompt and returns the typed line.
ReadLine: TypeAlias = Callable[[str], Awaitable[str]]


class NoAnswer(Exception):
    """The user left the question: Ctrl-C, Ctrl-D, or the end of the terminal."""


def is_interactive() -> bool:
    """Return whether somebody can be asked at the terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


def permission_callback(root: str | os.PathLike[str]) -> Ask | None:
    """Return a callback that asks at the terminal, with paths relative to `root`; None without a terminal."""
    if not is_interactive():
        return None
    root = os.path.abspath(root)  # now: later the current folder may be gone

    async def ask(question: Question) -> Answer:
        tool = question.plan.tool
        formatter = CallFormatter(lambda name: tool if name == tool.name else None, root)
        return await ask_permission(question, read_line, formatter, in_session=False)

    return ask


def question_handler() -> QuestionHandler | None:
    """Return a handler that asks at the terminal; None without a terminal."""
    return TerminalQuestions(read_line) if is_interactive() else None


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


async def ask_permission(
    question: Question, read_line: ReadLine, formatter: CallFormatter, *, in_session: bool = True
) -> Answer:
    """Show a permission question and read until the answer is valid. Leaving the question is a no.

    In a session a rule can hold for that session alone, and a no is followed by the question what to do instead.
    """
    inquiry = permission_inquiry(question, formatter)
    scopes = _rule_scopes(inquiry, in_session=in_session)
    console.write_error(
        "\n".join(["", *_format_inquiry(inquiry, question, formatter), *_format_choices(inquiry, scopes)])
    )
    keys = ", ".join(["y", *scopes])
    try:
        while True:
            reply = (await read_line("  > ")).strip().lower()
            if reply in ("y", "yes"):
                return Answer(True)
            if scope := scopes.get("a" if reply == "always" else reply):
                return Answer(True, remember=question.decision.suggestions, scope=scope)
            if reply in ("n", "no", ""):
                prompt = "  what should be done instead? (Enter: nothing) "
                return Answer(False, (await read_line(prompt)).strip() if in_session else "")
            console.write_error(f"  please answer {keys} or n")
    except NoAnswer:
        return Answer(False)


def _rule_scopes(inquiry: Inquiry, *, in_session: bool) -> dict[str, GrantScope]:
    """The keys that remember the rule of a question, and where it then holds."""
    if not any(choice.has_scope for choice in inquiry.choices):
        return {}
    offered = {scope for scope, _ in inquiry.scopes} - (set() if in_session else {"session"})
    return {key: scope for key, scope in SCOPE_KEYS.items() if scope in offered}


def _format_inquiry(inquiry: Inquiry, question: Question, formatter: CallFormatter) -> Iterator[str]:
    """Yield what is asked. Where the whole would push its beginning off the screen, the call is named again below it."""
    size = shutil.get_terminal_size()
    body = ["  " + row_text(tuple(line)) for line in inquiry.body]
    rows = sum(1 + len(line) // max(size.columns, 1) for line in body)
    yield inquiry.title
    yield from body
    if rows + ROWS_BELOW > size.lines:
        subject = formatter.describe(question.plan.tool.name, question.plan.input)
        summary = truncate(escape_to_line(escape_invisible(subject)), MAX_SUMMARY_CHARS)
        yield f"{inquiry.title} {summary} (all of it is above: {rows} rows)"


def _format_choices(inquiry: Inquiry, scopes: Mapping[str, GrantScope]) -> Iterator[str]:
    yield "  [y] yes"
    rule = next((choice.rule for choice in inquiry.choices if choice.has_scope), "")
    names = dict(inquiry.scopes)
    for number, (key, scope) in enumerate(scopes.items()):
        what = f"yes, and don't ask again for {rule} {names[scope]}" if number == 0 else f"the same {names[scope]}"
        yield f"  [{key}] {what}"
    yield "  [n] no"


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
