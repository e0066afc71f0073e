"""How far a JSON object reaches, while it arrives in pieces; every character is looked at once."""

from __future__ import annotations

from wieldy.schema.pattern import pattern

_MARK = pattern(r'["{}\[\]]')
_IN_STRING = pattern(r'["\\]')


class Extent:
    """Feed it pieces; it says when the object has closed."""

    def __init__(self) -> None:
        self.empty = True
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, piece: str) -> bool:
        """Whether the object is complete with this piece."""
        at = 0
        self.empty = self.empty and not piece.strip()
        while at < len(piece):
            if self._escaped:
                self._escaped = False
                at += 1
                continue
            match = (_IN_STRING if self._in_string else _MARK).search(piece, at)
            if match is None:
                return False
            at = match.end()
            mark = match[0]
            if mark == '"':
                self._in_string = not self._in_string
            elif mark == "\\":
                self._escaped = True
            else:
                self._depth += 1 if mark in "{[" else -1
                if self._depth <= 0:
                    return True
        return False
