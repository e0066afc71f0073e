"""What a slash command is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from wieldy.faces.terminal.chat import Chat


class ExitChat(Exception):
    """The user leaves the session."""


class Command(Struct, frozen=True):
    """A slash command. `while_running`: it does not wait for the end of a run. `complete` proposes its arguments."""

    about: str
    run: Callable[[Chat, str], Awaitable[None]]
    while_running: bool = False
    usage: str = ""
    complete: Callable[[Chat], Sequence[str]] | None = None


def first_sentence(text: str) -> str:
    """The first sentence of a description, without its full stop."""
    return " ".join(text.partition(". ")[0].split()).rstrip(".")
