"""The inline screen: finished rows go to the terminal's own scrollback, the live rows below them are drawn over.

Nothing is ever cleared but the live rows, one by one: in tmux, clearing to the end of the screen pushes what was there into
the scrollback. All movement is relative, so the cursor's absolute position is never needed. After a change of the width the
terminal has wrapped the live rows again; they are counted again before they are erased.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from wieldy.terminal.style import Palette
from wieldy.terminal.text import Row, row_width

BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"  # the terminal shows all of a frame at once, where it can
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
ERASE_REST, ERASE_ROW = "\x1b[K", "\x1b[2K"
PASTE_ON, PASTE_OFF = "\x1b[?2004h", "\x1b[?2004l"


class Caret(NamedTuple):
    """A place in the live rows."""

    row: int
    column: int


def rewraps_on_resize(env: Mapping[str, str] = os.environ) -> bool:
    """Whether the terminal wraps its rows again when its width changes; xterm, GNU screen and the Linux console do not."""
    term = env.get("TERM", "")
    if env.get("TMUX"):
        return True
    return not (term == "linux" or term.startswith("screen") or env.get("STY") or env.get("XTERM_VERSION"))


class Screen:
    """Draws frames. `write` takes one frame as text; `rewraps` is whether the terminal wraps rows again on a resize."""

    def __init__(self, write: Callable[[str], None], palette: Palette, *, rewraps: bool = True) -> None:
        self._write = write
        self._palette = palette
        self._rewraps = rewraps
        self._rows: list[str] = []
        self._widths: list[int] = []
        self._caret = Caret(0, 0)
        self._columns = 0
        self._modes_on = False

    def draw(self, finished: Sequence[Row], live: Sequence[Row], caret: Caret, columns: int) -> None:
        """Write finished rows above the live ones, and bring the live ones up to date, in one write."""
        encode = self._palette.encode
        new_rows, new_widths = [encode(row) for row in live], [row_width(row) for row in live]
        if self._rows and columns != self._columns:
            frame = [*self._erase(columns)]
            self._rows = []
        else:
            frame = []
        if finished:
            frame += self._scroll_in([(encode(row), row_width(row)) for row in finished], columns)
        frame += self._update(new_rows)
        self._rows, self._widths, self._columns = new_rows, new_widths, columns
        if frame or caret != self._caret:
            frame += self._move(caret.row)
            frame.append(f"\r\x1b[{caret.column}C" if caret.column else "\r")
            self._caret = caret
        if not self._modes_on:
            self._modes_on = True
            frame.append(PASTE_ON)
        if frame:
            self._write(f"{BEGIN_FRAME}{HIDE_CURSOR}{''.join(frame)}{SHOW_CURSOR}{END_FRAME}")

    def erase(self, columns: int | None = None) -> None:
        """Take the live rows off the screen; the cursor stands where they began."""
        if self._rows:
            self._write("".join(self._erase(columns or self._columns)))
        self._rows, self._widths, self._caret = [], [], Caret(0, 0)

    def close(self) -> None:
        """Switch off what was switched on."""
        if self._modes_on:
            self._write(f"{PASTE_OFF}{SHOW_CURSOR}")
            self._modes_on = False

    def _erase(self, columns: int) -> list[str]:
        """Erase the live rows one by one and go to where they began."""
        above, below = self._rows_around_caret(columns)
        frame = ["\r", *([f"\x1b[{above}A"] if above else []), ERASE_ROW]
        total = above + below
        frame += [f"\x1b[1B{ERASE_ROW}"] * total
        frame.append(f"\x1b[{total}A" if total else "")
        self._caret = Caret(0, 0)
        return frame

    def _rows_around_caret(self, columns: int) -> tuple[int, int]:
        """Count the rows of the terminal that the live rows take above and below the one with the cursor."""
        if columns == self._columns or not self._rewraps:
            return self._caret.row, len(self._rows) - 1 - self._caret.row
        heights = [max(-(-width // columns), 1) for width in self._widths]
        above = sum(heights[: self._caret.row]) + self._caret.column // columns
        return above, max(sum(heights) - 1 - above, 0)

    def _scroll_in(self, finished: Sequence[tuple[str, int]], columns: int) -> list[str]:
        """Write finished rows over the live ones; what is left of those is the beginning of the new live rows."""
        frame: list[str] = []
        if any(width >= columns for _, width in finished):
            # A long row runs over the rows below it: they must be empty.
            frame += self._erase(columns) if self._rows else []
            self._rows = []
        frame += self._move(0)
        for text, width in finished:
            frame.append(f"\r{text}{ERASE_REST if width < columns else ''}\r\n")
        self._rows = self._rows[len(finished) :]
        self._caret = Caret(0, 0)
        return frame

    def _update(self, new: Sequence[str]) -> list[str]:
        """Rewrite the live rows that differ; add and erase rows at the end."""
        frame: list[str] = []
        old = self._rows
        for number, text in enumerate(new):
            if number < len(old):
                if text != old[number]:
                    frame += [*self._move(number), f"\r{text}{ERASE_REST}"]
            elif number == 0:
                frame.append(f"\r{text}{ERASE_REST}")
            else:
                frame += [*self._move(number - 1), f"\r\n{text}{ERASE_REST}"]
                self._caret = Caret(number, 0)
        for number in range(max(len(new), 1), len(old)):
            frame += [*self._move(number), ERASE_ROW]
        if not new and old:
            frame += [*self._move(0), ERASE_ROW]
        return frame

    def _move(self, row: int) -> list[str]:
        """Move the cursor to a live row that is on the screen."""
        distance = row - self._caret.row
        self._caret = Caret(row, self._caret.column)
        if distance == 0:
            return []
        return [f"\x1b[{distance}B" if distance > 0 else f"\x1b[{-distance}A"]
