"""How a notebook is written: line breaks, indentation, separators, escapes. New cells are written in the same hand."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from wieldy.core.record import record
from wieldy.notebook.scan import Member, Placed


@record
class Layout:
    """`cell` is what stands before a cell and `close` what stands after the last; both are empty in a file on one line.
    `unit` is one step of indentation, `comma` the separator on one line."""

    cell: str
    close: str
    unit: str
    comma: str
    colon: str
    escapes: bool

    @property
    def member(self) -> str:
        """What stands before a member of a cell."""
        return self.cell + self.unit if self.cell else ""

    def string(self, text: str) -> str:
        """A string, quoted."""
        return json.dumps(text, ensure_ascii=self.escapes)

    def named(self, name: str, value: str) -> str:
        """A member."""
        return f'"{name}"{self.colon}{value}'

    def object(self, written: Iterable[str]) -> str:
        """A cell of these members."""
        return "{" + self._joined(written, self.member) + self.cell + "}"

    def array(self, written: Sequence[str]) -> str:
        """The value of a cell's member: an array of these items."""
        if not written:
            return "[]"
        deeper = self.member + self.unit if self.cell else ""
        return "[" + self._joined(written, deeper) + self.member + "]"

    def _joined(self, written: Iterable[str], gap: str) -> str:
        return gap + ("," + gap if gap else self.comma).join(written)


def layout_of(text: str, top: Sequence[Member], cells: Placed) -> Layout:
    """The hand a notebook is written in; `top` are its members, `cells` the array of its cells."""
    first = top[0]
    before = text[text.index("{") + 1 : first.start]
    colon = text[first.named : first.value.start]
    comma = ", "
    if len(top) > 1:
        comma = text[first.value.end : top[1].start]
    break_at = before.rfind("\n")
    if break_at < 0:
        return Layout("", "", "", comma if "\n" not in comma else ", ", colon, _escapes(text))
    newline = "\r\n" if before[:break_at].endswith("\r") else "\n"
    unit = before[break_at + 1 :]
    cell, close = newline + unit * 2, newline + unit
    if cells.value:
        written = text[cells.start + 1 : cells.value[0].start]
        # A file may be indented outside and have its cells on one line each.
        cell = written if "\n" in written else ""
        close = text[cells.value[-1].end : cells.end - 1]
    return Layout(cell, close, unit, ", ", colon, _escapes(text))


def _escapes(text: str) -> bool:
    """Whether the writer escapes all characters beyond ASCII: there are none, but there are escapes of such."""
    if not text.isascii():
        return False
    at = text.find("\\u")
    while at >= 0:
        before = at
        while before and text[before - 1] == "\\":
            before -= 1
        # A backslash that is itself escaped does not begin an escape.
        if (at - before) % 2 == 0 and int(text[at + 2 : at + 6], 16) >= 0x80:
            return True
        at = text.find("\\u", at + 2)
    return False
