"""The inline screen: finished rows go to the terminal's own scrollback, the live rows below them are drawn over.

Nothing is ever cleared but the live rows, one by one: in tmux, clearing to the end of the screen pushes what was there into
the scrollback. All movement is relative, so the cursor's absolute position is never needed. After a change of the size the
live rows are erased and drawn again: a terminal that gets narrower has wrapped them again, so they are counted again; one that
gets lower has cut off rows below the cursor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, TypeAlias

from wieldy.core.console import (
    BEGIN_FRAME,
    CARRIAGE_RETURN,
    END_FRAME,
    ERASE_LINE,
    ERASE_TO_LINE_END,
    HIDE_CURSOR,
    KITTY_KEYS_OFF,
    KITTY_KEYS_ON,
    LINE_BREAK,
    MODIFIED_KEYS_OFF,
    MODIFIED_KEYS_ON,
    PASTE_MARKS_OFF,
    PASTE_MARKS_ON,
    RESTORE_CURSOR,
    SAVE_CURSOR,
    SHOW_CURSOR,
    Fragment,
    TerminalCommand,
    cursor_down,
    cursor_right,
    cursor_up,
)
from wieldy.faces.terminal.text import Row, row_fragments, row_width

KeyProtocol: TypeAlias = Literal["kitty", "modifyOtherKeys"]
# What switches the report of modified keys on and off.
KEY_MODES: Mapping[KeyProtocol, tuple[TerminalCommand, TerminalCommand]] = {
    "kitty": (KITTY_KEYS_ON, KITTY_KEYS_OFF),
    "modifyOtherKeys": (MODIFIED_KEYS_ON, MODIFIED_KEYS_OFF),
}


class Caret(NamedTuple):
    """A place in the live rows."""

    row: int
    column: int


def key_protocol(env: Mapping[str, str] = os.environ) -> KeyProtocol | None:
    """The protocol to ask a terminal for; None where it is not known to have one.

    The environment tells: a question to the terminal could be answered into the shell after we have left.
    """
    term, program = env.get("TERM", ""), env.get("TERM_PROGRAM", "")
    if env.get("TMUX"):
        return "modifyOtherKeys"
    if env.get("STY") or term.startswith("screen"):
        return None
    if term in ("xterm-kitty", "alacritty", "rio", "xterm-rio") or env.get("KITTY_WINDOW_ID") or program == "rio":
        return "kitty"
    if env.get("XTERM_VERSION") or term.startswith("foot") or term == "xterm-ghostty":
        return "modifyOtherKeys"
    return "modifyOtherKeys" if program in ("WezTerm", "ghostty", "iTerm.app", "mintty") else None


def rewraps_on_resize(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal wraps its rows again when its width changes; xterm, st, GNU screen and the Linux console do not."""
    if env.get("TMUX"):
        return True
    if env.get("STY") or env.get("XTERM_VERSION"):
        return False
    return env.get("TERM", "") not in ("linux", "st") and not env.get("TERM", "").startswith(
        ("screen", "st-", "stterm")
    )


class Screen:
    """Draws frames. `write` takes the fragments of one frame; `rewraps`: the terminal wraps rows again on a resize.

    `keys` is the protocol by which the terminal is asked to report keys such as Shift-Enter.
    """

    def __init__(
        self, write: Callable[[Sequence[Fragment]], None], *, rewraps: bool = True, keys: KeyProtocol | None = None
    ) -> None:
        self._write = write
        self._rewraps = rewraps
        self._key_modes = KEY_MODES.get(keys) if keys is not None else None
        self._rows: list[Row] = []
        self._caret = Caret(0, 0)
        self._columns = self._lines = 0
        self._modes_on = False

    def draw(self, finished: Sequence[Row], live: Sequence[Row], caret: Caret, columns: int, lines: int = 0) -> None:
        """Write finished rows above the live ones, and bring the live ones up to date, in one write."""
        frame: list[Fragment] = []
        if self._rows and (columns, lines) != (self._columns, self._lines):
            frame += self._erase(columns)
            self._rows = []
        if finished:
            frame += self._scroll_in(finished, columns)
        frame += self._update(live)
        self._rows, self._columns, self._lines = list(live), columns, lines
        if frame or caret != self._caret:
            frame += [*self._move(caret.row), CARRIAGE_RETURN, cursor_right(caret.column)]
            self._caret = caret
        if not self._modes_on:
            self._modes_on = True
            frame += [PASTE_MARKS_ON, *(self._key_modes[:1] if self._key_modes else ())]
        if frame:
            self._write([BEGIN_FRAME, HIDE_CURSOR, *frame, SHOW_CURSOR, END_FRAME])

    def erase(self) -> None:
        """Take the live rows off the screen; the cursor stands where they began."""
        if self._rows:
            self._write(self._erase(self._columns))
        self._rows, self._caret = [], Caret(0, 0)

    def close(self) -> None:
        """Switch off what was switched on."""
        if self._modes_on:
            self._write([*(self._key_modes[1:] if self._key_modes else ()), PASTE_MARKS_OFF, SHOW_CURSOR])
            self._modes_on = False

    def _erase(self, columns: int) -> list[Fragment]:
        """Erase the live rows one by one and go to where they began.

        Those below the cursor may have been cut off: at the end of the screen the cursor stays, so it is put back.
        """
        above, below = self._rows_around_caret(columns)
        frame: list[Fragment] = [CARRIAGE_RETURN, ERASE_LINE]
        if below:
            frame += [SAVE_CURSOR, *[cursor_down(1), ERASE_LINE] * below, RESTORE_CURSOR]
        frame += [cursor_up(1), ERASE_LINE] * above
        self._caret = Caret(0, 0)
        return frame

    def _rows_around_caret(self, columns: int) -> tuple[int, int]:
        """Count the rows of the terminal that the live rows take above and below the one with the cursor."""
        if columns == self._columns or not self._rewraps:
            return self._caret.row, len(self._rows) - 1 - self._caret.row
        heights = [max(-(-row_width(row) // columns), 1) for row in self._rows]
        above = sum(heights[: self._caret.row]) + self._caret.column // columns
        return above, max(sum(heights) - 1 - above, 0)

    def _scroll_in(self, finished: Sequence[Row], columns: int) -> list[Fragment]:
        """Write finished rows over the live ones; what is left of those is the beginning of the new live rows."""
        widths = [row_width(row) for row in finished]
        frame: list[Fragment] = []
        if self._rows and max(widths) >= columns:  # a long row runs over the rows below it: they must be empty
            frame += self._erase(columns)
            self._rows = []
        frame += [*self._move(0), CARRIAGE_RETURN]
        for row, width in zip(finished, widths, strict=True):
            frame += [*row_fragments(row), *([ERASE_TO_LINE_END] if width < columns else []), LINE_BREAK]
        self._rows = self._rows[len(finished) :]
        self._caret = Caret(0, 0)
        return frame

    def _update(self, rows: Sequence[Row]) -> list[Fragment]:
        """Rewrite the live rows that differ; add and erase rows at the end."""
        frame: list[Fragment] = []
        old = self._rows
        for number, row in enumerate(rows):
            if number < len(old):
                if row == old[number]:
                    continue
                frame += [*self._move(number), CARRIAGE_RETURN]
            elif number == 0:
                frame.append(CARRIAGE_RETURN)
            else:
                frame += [*self._move(number - 1), LINE_BREAK]
                self._caret = Caret(number, 0)
            frame += [*row_fragments(row), ERASE_TO_LINE_END]
        for number in range(len(rows), len(old)):
            frame += [*self._move(number), ERASE_LINE]
        return frame

    def _move(self, row: int) -> list[Fragment]:
        """Move the cursor to a live row that is on the screen."""
        distance = row - self._caret.row
        self._caret = Caret(row, self._caret.column)
        if distance == 0:
            return []
        return [cursor_down(distance) if distance > 0 else cursor_up(-distance)]
