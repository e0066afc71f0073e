"""Questions of substance at a terminal: options by number, or an answer in words."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Sequence

from wieldy.core.inquiry import Asker, Inquiry, Reply
from wieldy.permissions.visible import visible
from wieldy.terminal.question import Unanswered, typed


class AtTerminal:
    """Asks one question after another; `line` shows a prompt and reads a line."""

    def __init__(self, line: Callable[[str], Awaitable[str]]) -> None:
        self._line = line

    async def answer(self, inquiries: Sequence[Inquiry]) -> Sequence[Reply] | None:
        """The replies, or None where the person answered nothing at all, or left."""
        replies: list[Reply] = []
        for inquiry in inquiries:
            print(f"\n{shown(inquiry)}", file=sys.stderr)
            try:
                said = await self._line("  > ")
            except Unanswered:
                return None
            replies.append(understood(said, inquiry))
        return replies if any(map(str, replies)) else None


def terminal_asker() -> Asker | None:
    """Somebody who asks at the terminal, or None where nobody sits."""
    return AtTerminal(typed) if sys.stdin.isatty() and sys.stderr.isatty() else None


def shown(inquiry: Inquiry) -> str:
    """A question with its options, numbered."""
    how = "numbers, or your own words" if inquiry.several else "a number, or your own words"
    options = [f"  [{number}] {visible(option)}" for number, option in enumerate(inquiry.options, start=1)]
    return "\n".join([visible(inquiry.question), *options, *([f"  ({how}; Enter: no answer)"] if options else [])])


def understood(said: str, inquiry: Inquiry) -> Reply:
    """What a line means: options by number where it is nothing but their numbers, one by its name, else words."""
    said, options = said.strip(), inquiry.options
    numbers = (
        [int(word) for word in re.split(r"[\s,;]+", said) if word] if re.fullmatch(r"[\d\s,;]{1,40}", said) else []
    )
    if numbers and all(1 <= number <= len(options) for number in numbers) and (len(numbers) == 1 or inquiry.several):
        return Reply(tuple(options[number - 1] for number in dict.fromkeys(numbers)))
    named = next((option for option in options if option.casefold() == said.casefold()), None)
    return Reply((named,)) if named else Reply(words=said)
