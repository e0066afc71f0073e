"""Runs an inline session in which something cannot be drawn. The arguments are the model and what fails.

`texts`: the texts of a tool for people. `block`: a finished block. `frame`: the live part of the screen.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from wieldy import Session, ToolResult, tool
from wieldy.cli import report_errors
from wieldy.cli.run import run_chat
from wieldy.core.console import flush_streams
from wieldy.core.tool_decorator import FunctionTool
from wieldy.faces.terminal.app import InlineSession
from wieldy.faces.terminal.chat import Chat
from wieldy.faces.terminal.text import Row
from wieldy.faces.terminal.view_model import SpansBlock, ViewModel

MODEL, FAULT = sys.argv[1:]


class Unshowable(FunctionTool[Any, Any]):
    """A tool whose texts for people fail."""

    def show_use(self, input: Mapping[str, Any]) -> str:
        return str(input["missing"])

    def show_result(self, result: ToolResult) -> str:
        raise ValueError("broken result")


@tool(cls=Unshowable, read_only=True)
def weather(city: str) -> str:
    """The weather in a city."""
    return f"{city}: sunny"


class FailingRows(tuple[Row, ...]):
    def __iter__(self) -> Iterator[Row]:
        raise ValueError("broken rows")


class FailingView(ViewModel):
    """Fails as soon as there is an answer."""

    def live_rows(self, width: int, now: float, most: int) -> list[Row]:
        if self.last_answer:
            raise ValueError("broken frame")
        return super().live_rows(width, now, most)


def create_surface(chat: Chat) -> InlineSession:
    if FAULT == "block":
        chat.view.show(SpansBlock(FailingRows()))
    elif FAULT == "frame":
        chat.view = FailingView(chat.session.box.catalog.find, chat.session.box.workspace.root)
    return InlineSession(chat)


def open_session(**options: Any) -> Session:
    return Session(model=MODEL, tools=[weather], load_settings=True, **options)


code = report_errors(lambda: run_chat(open_session, create_surface))
flush_streams()
os._exit(code)  # as the program does: a thread that still loads modules would abort the end of the interpreter
