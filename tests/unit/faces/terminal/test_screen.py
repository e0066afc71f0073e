"""A resize: what a terminal does with its rows by itself, and what the screen erases."""

from __future__ import annotations

from collections.abc import Sequence

import pyte
import pytest

from wieldy.core.console import Fragment, render
from wieldy.faces.terminal.screen import Caret, Screen, rewraps_on_resize
from wieldy.faces.terminal.text import Row, TextSpan


@pytest.mark.parametrize(
    ("env", "rewraps"),
    [
        ({"TERM": "xterm-256color"}, True),
        ({"TERM": "xterm-256color", "XTERM_VERSION": "XTerm(379)"}, False),
        ({"TERM": "linux"}, False),
        ({"TERM": "st-256color"}, False),
        ({"TERM": "stterm-256color"}, False),
        ({"TERM": "screen.xterm-256color"}, False),
        ({"TERM": "tmux-256color", "TMUX": "/tmp/tmux"}, True),
        ({"TERM": "screen-256color", "TMUX": "/tmp/tmux"}, True),
        ({"TERM": "screen-256color", "STY": "1.pts"}, False),
    ],
)
def test_the_environment_tells_whether_a_terminal_wraps_again(env: dict[str, str], rewraps: bool) -> None:
    assert rewraps_on_resize(env) == rewraps


def test_a_terminal_that_cuts_its_rows_loses_no_finished_row() -> None:
    emulator = pyte.Screen(40, 6)
    stream = pyte.Stream(emulator)

    def write(fragments: Sequence[Fragment]) -> None:
        stream.feed(render(*fragments, color=True))

    live: list[Row] = [(TextSpan("an answer that is being written"),), (), (TextSpan("› draft"),)]
    screen = Screen(write, rewraps=False)
    screen.draw([(TextSpan("one"),), (TextSpan("two"),)], live, Caret(2, 7), 40, 6)
    emulator.resize(columns=20)
    screen.draw([], live[1:], Caret(1, 7), 20, 6)
    assert [row.rstrip() for row in emulator.display] == ["one", "two", "", "› draft", "", ""]
