"""Questions to the person: as a state of the inline session, and line by line on a plain terminal.

A question never takes keys that were meant for something else. In the inline session it gets the keys only after half a second
in which it could be seen and nothing was typed, and not while a draft stands in the box, unless Tab says so. On a plain terminal
what was typed before is discarded.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
import sys
import termios
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, TypeAlias

from msgspec import Struct

from wieldy.core import console
from wieldy.core.call import EDIT_FIELDS, PlannedCall, list_edits
from wieldy.core.decision import Answer, GrantScope, Question
from wieldy.core.text import escape_invisible, escape_to_line, truncate
from wieldy.core.threads import in_thread
from wieldy.core.user_questions import QuestionHandler, UserAnswer, UserQuestion
from wieldy.engine.services import Ask
from wieldy.faces.terminal.calls import CallFormatter
from wieldy.faces.terminal.text import Row, TextSpan, clip_row, merge_spans, row_text, to_line, wrap_spans
from wieldy.faces.terminal.view_model import change_rows

BAR = "│ "
REASON = "↳ "
POINTER = "› "
GUARD_SECONDS = 0.5
MAX_FIELD_CHARS = 20_000
SCOPES: tuple[tuple[GrantScope, str], ...] = (
    ("session", "for this session"),
    ("project", "in this project"),
    ("user", "everywhere"),
)


class Choice(Struct, frozen=True):
    """One answer. `wants_words` asks for a text with it; `has_scope` lets left and right choose where a rule is saved."""

    label: str
    value: Any
    rule: str = ""
    wants_words: bool = False
    has_scope: bool = False


# What a person chose, and their words.
Reply: TypeAlias = tuple[Choice, str]


class Inquiry:
    """A question on the screen. `result` gets the chosen value with the words; None means that the person left it.

    `stops_run`: to leave it stops the run that asks. `summary`, only of a permission question, names the call again below a
    long body.
    """

    def __init__(
        self,
        title: str,
        body: Sequence[Sequence[TextSpan]],
        choices: Sequence[Choice],
        *,
        several: bool = False,
        stops_run: bool = True,
        summary: str = "",
    ) -> None:
        self.title = title
        self.body = body
        self.choices = tuple(choices)
        self.several = several
        self.stops_run = stops_run
        self.summary = summary
        self.selected = 0
        self.scope = 1
        self.scopes = SCOPES
        self.marked: set[int] = set()
        self.scroll = 0
        self.entering_words = False
        self.waiting = 0
        self.caret_row = 0
        self._body_rows = 0
        self._shown_rows = 0
        self._ready_at: float | None = None
        self._taken = False

    @cached_property
    def result(self) -> asyncio.Future[Reply | None]:
        return asyncio.get_running_loop().create_future()

    # Which keys are for the question

    def on_shown(self, now: float) -> None:
        """The question is on the screen from now on."""
        if self._ready_at is None:
            self._ready_at = now + GUARD_SECONDS

    def on_key_elsewhere(self, now: float) -> None:
        """A key went to the draft: the question waits another half second."""
        if self._ready_at is not None:
            self._ready_at = max(self._ready_at, now + GUARD_SECONDS)

    def has_focus(self, now: float, *, draft: bool) -> bool:
        if self._ready_at is None or now < self._ready_at:
            return False
        return self._taken or not draft

    def seconds_to_focus(self, now: float) -> float:
        return max((self._ready_at or now) - now, 0.0)

    def take_focus(self, now: float) -> bool:
        """Tab: the person turns to the question, though there is a draft."""
        if self._ready_at is None or now < self._ready_at:
            return False
        self._taken = True
        return True

    # Answering

    def move(self, distance: int) -> None:
        self.selected = (self.selected + distance) % len(self.choices)

    def change_scope(self, distance: int) -> None:
        if self.choices[self.selected].has_scope:
            self.scope = (self.scope + distance) % len(self.scopes)

    def toggle(self) -> None:
        if self.several and not self.choices[self.selected].wants_words:
            self.marked ^= {self.selected}

    def scroll_by(self, distance: int) -> None:
        self.scroll = max(min(self.scroll + distance, self._body_rows - self._shown_rows), 0)

    def choose(self, number: int | None = None) -> None:
        """Take the selected answer, or that of a number; where it wants words, they come first."""
        if number is not None:
            if number >= len(self.choices):
                return
            self.selected = number
            if self.several and not self.choices[number].wants_words:
                self.toggle()
                return
        if self.choices[self.selected].wants_words:
            self.entering_words = True
        else:
            self.finish("")

    def finish(self, words: str) -> None:
        if not self.result.done():
            self.result.set_result((self.choices[self.selected], words))

    def leave(self) -> None:
        if not self.result.done():
            self.result.set_result(None)

    # Drawing

    def rows(self, width: int, most: int, *, focused: bool, draft: bool) -> list[Row]:
        """Lay out the question in at most `most` rows: its body can be scrolled, the selected answer is always there."""
        room = max(width - 1, 10)
        more = f"  {self.waiting} more waiting" if self.waiting else ""
        title = [TextSpan(self.title, "bold"), TextSpan(more, "dim")]
        head = wrap_spans(title, room, first=(TextSpan("? ", "yellow bold"),), rest=(TextSpan("  "),))
        body = [row for line in self.body for row in _body_rows(line, room)]
        answers = [self._choice_rows(number, room, focused=focused) for number in range(len(self.choices))]
        hint = TextSpan(f"  {self._hint(focused=focused, draft=draft)}", "dim")
        frame: tuple[list[Row], list[Row]] = ([()], [clip_row((hint,), room)])
        if len(head) + min(len(body), 3) + sum(map(len, answers)) + 2 > most:  # a small screen
            head, frame = head[:1], ([], [])
            answers = [
                rows if number == self.selected else [clip_row(merge_rows(rows), room)]
                for number, rows in enumerate(answers)
            ]
        space = most - len(head) - min(len(body), 2) - len(frame[0]) - len(frame[1])
        shown = self._window(answers, max(space, 1))
        space = max(most - len(head) - len(shown) - len(frame[0]) - len(frame[1]), 1 if body else 0)
        body = self._scrolled(body, space, room)
        rows = [*head, *body, *frame[0], *shown, *frame[1]][: max(most, 2)]
        self.caret_row = next((n for n, row in enumerate(rows) if row and row[0].text == POINTER), len(rows) - 1)
        return rows

    def _window(self, answers: Sequence[list[Row]], most: int) -> list[Row]:
        """The answers around the selected one, as many as fit."""
        start = end = self.selected
        used = len(answers[start])
        while True:
            if end + 1 < len(answers) and used + len(answers[end + 1]) <= most:
                end += 1
                used += len(answers[end])
            elif start > 0 and used + len(answers[start - 1]) <= most:
                start -= 1
                used += len(answers[start])
            else:
                break
        return [row for rows in answers[start : end + 1] for row in rows][:most]

    def _scrolled(self, body: list[Row], space: int, width: int) -> list[Row]:
        """The part of the body that fits, and how much there is above and below it."""
        self._body_rows, self._shown_rows = len(body), min(len(body), space)
        if len(body) <= space:
            return body
        self._shown_rows = max(space - 1, 1)
        self.scroll_by(0)
        shown = body[self.scroll : self.scroll + self._shown_rows]
        if space < 2:
            return shown
        below = len(body) - self.scroll - self._shown_rows
        hidden = [f"{self.scroll} above: PgUp"] * (self.scroll > 0) + [f"{below} below: PgDn"] * (below > 0)
        note = TextSpan(f"  … more rows, {', '.join(hidden)}", "yellow")
        return [*shown, clip_row((note,), width)]

    def _choice_rows(self, number: int, width: int, *, focused: bool) -> list[Row]:
        choice = self.choices[number]
        current = number == self.selected
        pointer = TextSpan(POINTER if current else "  ", "cyan bold" if focused else "dim")
        box = f"{'☑' if number in self.marked else '☐'} " if self.several and not choice.wants_words else ""
        label = TextSpan(choice.label, "bold" if current and focused else "")
        spans = [TextSpan(f"{number + 1}  {box}", "dim"), label]
        if choice.rule:
            spans += [TextSpan(" "), TextSpan(choice.rule, "cyan")]
        if choice.has_scope:
            spans.append(TextSpan(f"  {self.scopes[self.scope][1]}", "dim"))
            spans += [TextSpan(" ◂ ▸", "dim")] if current and focused else []
        return wrap_spans(spans, width, first=(pointer,), rest=(TextSpan("     "),))

    def _hint(self, *, focused: bool, draft: bool) -> str:
        if self.entering_words:
            return "Enter sends your words · Esc goes back"
        if not focused:
            return "Tab to answer · your draft is kept" if draft else "…"
        several = "Space marks · " if self.several else ""
        return f"{several}↑↓ or a number · Enter · Esc {'stops' if self.stops_run else 'leaves'}"


def merge_rows(rows: Sequence[Row]) -> Row:
    """Put wrapped rows back into one."""
    first, *rest = rows
    return (*first, *(span for row in rest for span in (TextSpan(" "), *row[1:])))


def _body_rows(line: Sequence[TextSpan], width: int) -> list[Row]:
    """Wrap a line of the body; what stands before it keeps it from passing for an answer."""
    indent = TextSpan("  ")
    if line and line[0].text == BAR:
        return wrap_spans(line[1:], width, first=(indent, line[0]))
    if line and line[0].text == REASON:
        return wrap_spans(line[1:], width, first=(indent, line[0]), rest=(indent, indent))
    return wrap_spans(line, width, first=(indent,))


def permission_inquiry(question: Question, formatter: CallFormatter) -> Inquiry:
    """The question whether a call may run: all that it will do, why it is asked, and the rule that would allow it."""
    plan, decision = question.plan, question.decision
    title = _permission_title(plan, formatter)
    if question.agent:
        title = f"The {to_line(question.agent, 60)} asks: {title}"
    asked = [reason for reason in decision.reasons if reason.behavior == decision.behavior]
    parts = list(dict.fromkeys(reason.part for reason in asked if reason.part))
    body = call_body(plan, parts, formatter)
    for reason in asked[:6]:
        part = f"{to_line(escape_invisible(reason.part), 200)}: " if reason.part and len(parts) > 1 else ""
        text = formatter.shorten_paths(escape_to_line(reason.text))
        where = f" ({formatter.shorten_paths(escape_to_line(str(reason.file)))})" if reason.file else ""
        body.append([TextSpan(REASON, "yellow"), TextSpan(f"{part}{text}{where}")])
    rule = ", ".join(map(escape_to_line, decision.suggestions))
    remember = Choice("Yes, and don't ask again for", "always", rule=rule, has_scope=True)
    choices = [
        Choice("Yes", "yes"),
        *([remember] if rule else []),
        Choice("No", "no"),
        Choice("No, and say what to do instead", "no", wants_words=True),
    ]
    subject = formatter.describe(plan.tool.name, plan.input)
    summary = truncate(escape_to_line(escape_invisible(subject)), MAX_SUMMARY_CHARS)
    inquiry = Inquiry(title, body, choices, summary=f"{title} {summary}")
    if any(reason.kind == "guard" for reason in asked):
        inquiry.selected = len(choices) - 2  # No: what a guard warns of takes a deliberate choice
    if any("(/" in suggestion for suggestion in decision.suggestions):
        inquiry.scopes = SCOPES[:2]  # a path of this project means nothing elsewhere
    return inquiry


def _permission_title(plan: PlannedCall, formatter: CallFormatter) -> str:
    name = plan.tool.name
    path = next((str(plan.input[key]) for key in ("file_path", "notebook_path") if key in plan.input), "")
    shown = to_line(escape_invisible(formatter.relative(path)), 200)
    match name:
        case "Bash":
            return (
                "Run this command?"
                if not plan.input.get("run_in_background")
                else "Run this command in the background?"
            )
        case "Write" if path:
            return f"Write {shown}?"
        case "ExitPlan":
            return "Start on this plan?"
    if path and plan.tool.rules == "edit":
        return f"Change {shown}?"
    return f"Use {formatter.label(name)}?"


def call_body(plan: PlannedCall, uncovered: Sequence[str], formatter: CallFormatter) -> list[list[TextSpan]]:
    """Everything a call will do, in full; the parts of a command that no rule covers are marked.

    Each line has a bar before it, so that none can pass for a line of the question.
    """
    body: list[Sequence[TextSpan]] = []
    edits = list_edits(plan.input)
    for old, new in edits:
        body += change_rows(escape_invisible(old), escape_invisible(new))
    for name, value in plan.input.items():
        if edits and name in EDIT_FIELDS or name in ("file_path", "description"):  # noqa: RUF021
            continue
        body += _field_lines(name, value, uncovered, formatter)
    return [[TextSpan(BAR, "dim"), *line] for line in body]


def _field_lines(name: str, value: Any, uncovered: Sequence[str], formatter: CallFormatter) -> list[Sequence[TextSpan]]:
    label = to_line(escape_invisible(name), 80)
    if isinstance(value, bool | int | float | None):
        return [[TextSpan(f"{label}: ", "dim"), TextSpan(str(value))]]
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=1, default=str)
    if name == "path":
        text = formatter.relative(text)
    hidden = len(text) - MAX_FIELD_CHARS if name != "command" else 0  # a command is shown to its last character
    lines = escape_invisible(text if hidden <= 0 else text[:MAX_FIELD_CHARS]).expandtabs(4).split("\n")
    if name == "command":
        shown = mark_parts(lines, uncovered)
    elif name in ("plan", "content"):
        shown = [[TextSpan(line)] for line in lines]
    elif len(lines) == 1:
        shown = [[TextSpan(f"{label}: ", "dim"), TextSpan(lines[0])]]
    else:
        shown = [[TextSpan(f"{label}:", "dim")], *([TextSpan(f"  {line}")] for line in lines)]
    return [*shown, [TextSpan(f"… {hidden:,} more characters", "yellow")]] if hidden > 0 else shown


def mark_parts(lines: Sequence[str], parts: Sequence[str]) -> list[Sequence[TextSpan]]:
    """Mark the parts of a command that no rule covers: bold and underlined. Without known parts all of it is bold."""
    text = "\n".join(lines)
    covered = [False] * len(text)
    found = False
    for part in parts:
        start = text.find(escape_invisible(part))
        while start >= 0:
            found = True
            end = start + len(escape_invisible(part))
            covered[start:end] = [True] * (end - start)
            start = text.find(escape_invisible(part), end)
    if not found or all(covered[i] or text[i] in " \n" for i in range(len(text))):
        return [[TextSpan(line, "bold")] for line in lines]
    marked: list[Sequence[TextSpan]] = []
    position = 0
    for line in lines:
        styles = ("bold underline" if covered[position + offset] else "" for offset in range(len(line)))
        marked.append(merge_spans(map(TextSpan, line, styles)))
        position += len(line) + 1
    return marked


def permission_answer(inquiry: Inquiry, question: Question, reply: Reply | None) -> Answer:
    if reply is None or reply[0].value == "no":
        return Answer(False, "" if reply is None else reply[1].strip())
    if reply[0].value == "always":
        return Answer(True, remember=question.decision.suggestions, scope=inquiry.scopes[inquiry.scope][0])
    return Answer(True)


def user_inquiry(question: UserQuestion) -> Inquiry:
    """A question of a tool about the task: its options, and always the person's own words."""
    first, *rest = escape_invisible(question.question).split("\n")
    choices = [Choice(to_line(escape_invisible(option), 500), option) for option in question.options]
    choices.append(
        Choice("Something else, in your own words" if choices else "Answer in your own words", None, wants_words=True)
    )
    body = [[TextSpan(BAR, "dim"), TextSpan(line)] for line in rest]
    return Inquiry(first, body, choices, several=question.several and bool(question.options))


def user_answer(inquiry: Inquiry, reply: Reply | None) -> UserAnswer | None:
    if reply is None:
        return None
    choice, words = reply
    options = [str(inquiry.choices[number].value) for number in sorted(inquiry.marked)]
    if choice.value is not None and (not inquiry.several or not options):
        options = [str(choice.value)]
    return UserAnswer(tuple(options), words.strip())


class InquiryQuestions:
    """Asks the questions of tools one after another. `ask` shows an inquiry; None ends it without an answer."""

    def __init__(self, ask: Callable[[Inquiry], Awaitable[Reply | None]]) -> None:
        self._ask = ask

    async def answer(self, questions: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        answers: list[UserAnswer] = []
        for question in questions:
            inquiry = user_inquiry(question)
            answer = user_answer(inquiry, await self._ask(inquiry))
            if answer is None:
                return None
            answers.append(answer)
        return answers if any(map(str, answers)) else None


MAX_SUMMARY_CHARS = 200
ROWS_BELOW = 8
"""Rows of a question below the input: summary, reason, choices, prompt."""
SCOPE_KEYS: Mapping[str, GrantScope] = {"a": "project", "s": "session", "e": "user"}
SPELLED_OUT = {"": "n", "no": "n", "yes": "y", "always": "a"}

# Shows a prompt and returns the typed line.
ReadLine: TypeAlias = Callable[[str], Awaitable[str]]


class NoAnswer(Exception):
    """The user left the question: Ctrl-C, Ctrl-D, or the end of the terminal."""


def is_interactive() -> bool:
    """Return whether a person can be asked at the terminal."""
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
    return InquiryQuestions(partial(ask_by_line, read_line=read_line)) if is_interactive() else None


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
    """Ask line by line whether a call may run. Leaving the question is a no."""
    inquiry = permission_inquiry(question, formatter)
    return permission_answer(inquiry, question, await ask_by_line(inquiry, read_line, in_session=in_session))


async def ask_by_line(inquiry: Inquiry, read_line: ReadLine, *, in_session: bool = True) -> Reply | None:
    """Show a question and read until the answer is valid; None where the person leaves it.

    In a session a rule can hold for that session alone, and a no is followed by the question what to do instead.
    """
    is_permission = bool(inquiry.summary)
    keys = _permission_keys(inquiry, in_session=in_session) if is_permission else _number_keys(inquiry)
    choices = [f"  [{key}] {text}" for key, text in keys.items()]
    hint, prompt = ("", "  > ") if is_permission else _how_to_answer(inquiry)
    console.write_error("\n".join(["", *_format_inquiry(inquiry), *choices, *([hint] if hint else [])]))
    try:
        while True:
            line = (await read_line(prompt)).strip()
            if not is_permission:
                return parse_answer(line, inquiry)
            key = SPELLED_OUT.get(line.lower(), line.lower())
            if key == "n":
                ask_back = "  what should be done instead? (Enter: nothing) "
                return inquiry.choices[-1], (await read_line(ask_back)).strip() if in_session else ""
            if key in keys:
                if (scope := SCOPE_KEYS.get(key)) is not None:
                    inquiry.scope = [name for name, _ in inquiry.scopes].index(scope)
                return inquiry.choices[key != "y"], ""
            console.write_error(f"  please answer {', '.join(list(keys)[:-1])} or n")
    except NoAnswer:
        return None


def _format_inquiry(inquiry: Inquiry) -> Iterator[str]:
    """Yield what is asked. Where the whole would push its beginning off the screen, the call is named again below it."""
    size = shutil.get_terminal_size()
    body = ["  " + row_text(tuple(line)) for line in inquiry.body]
    rows = sum(1 + len(line) // max(size.columns, 1) for line in body)
    yield inquiry.title
    yield from body
    if inquiry.summary and rows + ROWS_BELOW > size.lines:
        yield f"{inquiry.summary} (all of it is above: {rows} rows)"


def _permission_keys(inquiry: Inquiry, *, in_session: bool) -> dict[str, str]:
    """The letters that answer, and what each says."""
    keys = {"y": "yes"}
    names = dict(inquiry.scopes)
    what = "yes, and don't ask again for"
    for choice in inquiry.choices:
        for key, scope in SCOPE_KEYS.items() if choice.has_scope else ():
            if scope in names and (in_session or scope != "session"):
                keys[key] = f"{what} {choice.rule} {names[scope]}" if len(keys) == 1 else f"the same {names[scope]}"
    return {**keys, "n": "no"}


def _number_keys(inquiry: Inquiry) -> dict[str, str]:
    labels = [choice.label for choice in inquiry.choices if not choice.wants_words]
    return {str(number): label for number, label in enumerate(labels, start=1)}


def _how_to_answer(inquiry: Inquiry) -> tuple[str, str]:
    """A line below the choices, and the prompt."""
    if not inquiry.choices[-1].wants_words:
        return "", "  a number (Enter: none) > "
    numbers = "numbers" if inquiry.several else "a number"
    return f"  ({numbers}, or your own words; Enter: no answer)" if len(inquiry.choices) > 1 else "", "  > "


def parse_answer(line: str, inquiry: Inquiry) -> Reply | None:
    """Parse a line: choices by their numbers or one by its name, else the person's own words where they are an answer."""
    text, choices = line.strip(), [choice for choice in inquiry.choices if not choice.wants_words]
    numbers = [int(word) - 1 for word in re.findall(r"\d+", text)] if re.fullmatch(r"[\d\s,;]{1,40}", text) else []
    if numbers and all(0 <= number < len(choices) for number in numbers) and (len(numbers) == 1 or inquiry.several):
        inquiry.marked = set(numbers)
        return choices[numbers[0]], ""
    if (choice := next((each for each in choices if each.label.casefold() == text.casefold()), None)) is not None:
        return choice, ""
    return (inquiry.choices[-1], text) if inquiry.choices[-1].wants_words else None
