"""Permission questions on a plain terminal: what will run, why it asks, and three answers."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, TextIO, TypeAlias

from wieldy.approval import Ask
from wieldy.core.call import PlannedCall
from wieldy.core.decision import Answer, Question
from wieldy.core.invisible_text import escape_invisible
from wieldy.core.state_dirs import state_home
from wieldy.core.threads import in_thread
from wieldy.core.user_questions import QuestionHandler, UserAnswer, UserQuestion

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession


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
    print("\n".join(["", *who, *asked_about(plan), f"  {escape_invisible(decision.why)}", choices]), file=sys.stderr)
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
    line = escape_invisible(plan.tool.show_use(plan.input))
    yield line
    for name, value in plan.input.items():
        if isinstance(value, bool | int | float | None):
            continue
        text = escape_invisible(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1))
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


class AtTerminal:
    """Asks one question after another; `line` shows a prompt and reads a line."""

    def __init__(self, line: Callable[[str], Awaitable[str]]) -> None:
        self._line = line

    async def answer(self, inquiries: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        """The replies, or None where the person answered nothing at all, or left."""
        replies: list[UserAnswer] = []
        for inquiry in inquiries:
            print(f"\n{shown(inquiry)}", file=sys.stderr)
            try:
                said = await self._line("  > ")
            except Unanswered:
                return None
            replies.append(understood(said, inquiry))
        return replies if any(map(str, replies)) else None


def terminal_asker() -> QuestionHandler | None:
    """Somebody who asks at the terminal, or None where nobody sits."""
    return AtTerminal(typed) if sys.stdin.isatty() and sys.stderr.isatty() else None


def shown(inquiry: UserQuestion) -> str:
    """A question with its options, numbered."""
    how = "numbers, or your own words" if inquiry.several else "a number, or your own words"
    options = [f"  [{number}] {escape_invisible(option)}" for number, option in enumerate(inquiry.options, start=1)]
    return "\n".join(
        [escape_invisible(inquiry.question), *options, *([f"  ({how}; Enter: no answer)"] if options else [])]
    )


def understood(said: str, inquiry: UserQuestion) -> UserAnswer:
    """What a line means: options by number where it is nothing but their numbers, one by its name, else words."""
    said, options = said.strip(), inquiry.options
    numbers = (
        [int(word) for word in re.split(r"[\s,;]+", said) if word] if re.fullmatch(r"[\d\s,;]{1,40}", said) else []
    )
    if numbers and all(1 <= number <= len(options) for number in numbers) and (len(numbers) == 1 or inquiry.several):
        return UserAnswer(tuple(options[number - 1] for number in dict.fromkeys(numbers)))
    named = next((option for option in options if option.casefold() == said.casefold()), None)
    return UserAnswer((named,)) if named else UserAnswer(words=said)


def line_prompt() -> PromptSession[str]:
    """A prompt that remembers what was typed in earlier sessions. Where that cannot be kept, it is forgotten at the end."""
    from prompt_toolkit import PromptSession
    from prompt_toolkit.history import FileHistory

    class Kept(FileHistory):
        def load_history_strings(self) -> Iterable[str]:
            try:
                return super().load_history_strings()
            except OSError:
                return []

        def store_string(self, string: str) -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                super().store_string(string)
            except OSError:
                pass  # a full disk is no reason to lose what was typed just now

    path = state_home() / "history"
    return PromptSession(history=Kept(str(path)))


Style: TypeAlias = Literal["bold", "dim", "red", "green", "yellow", "cyan"]

_CODES: Mapping[Style, str] = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "cyan": "36"}


class Paint:
    """Puts a style round a text, or leaves it as it is."""

    def __init__(self, on: bool) -> None:
        self.on = on

    @classmethod
    def for_stream(cls, stream: TextIO | None = None, env: Mapping[str, str] = os.environ) -> Paint:
        """On for a terminal, unless `NO_COLOR` is set or the terminal is dumb."""
        stream = stream or sys.stdout
        return cls(stream.isatty() and not env.get("NO_COLOR") and env.get("TERM") != "dumb")

    def __call__(self, text: str, *styles: Style) -> str:
        """The text in these styles."""
        if not self.on or not styles:
            return text
        return f"\x1b[{';'.join(_CODES[style] for style in styles)}m{text}\x1b[0m"
