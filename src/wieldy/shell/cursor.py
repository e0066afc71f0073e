"""A position in a command line."""

from __future__ import annotations

from wieldy.shell.syntax import LiteralText, Piece, Script, Unparsable

MAX_DEPTH = 24


class Cursor:
    """Where a parser stands in a text, and the limit it must not pass."""

    def __init__(self, text: str, start: int, limit: int, depth: int) -> None:
        if depth > MAX_DEPTH:
            raise Unparsable("nested too deeply")
        self.text = text
        self.at = start
        self.limit = limit
        self.depth = depth

    def nested(self, text: str, start: int, limit: int) -> Script:
        """The script between two positions, read to its end."""
        raise NotImplementedError

    def enclosed(self) -> Script:
        """The script up to the closing parenthesis, which is consumed."""
        raise NotImplementedError

    def peek(self, ahead: int = 0) -> str:
        """The character ahead, or nothing at the limit."""
        index = self.at + ahead
        return self.text[index] if index < self.limit else ""

    def startswith(self, text: str | tuple[str, ...]) -> bool:
        """Whether `text` comes next, within the limit."""
        return self.text.startswith(text, self.at, self.limit)

    def _find(self, text: str, start: int) -> int:
        end = self.text.find(text, start, self.limit)
        if end < 0:
            raise Unparsable(f"`{text}` is missing")
        return end

    def _literal(self, pieces: list[Piece], text: str) -> None:
        self._take(pieces, text, len(text), quoted=False)

    def _take(self, pieces: list[Piece], text: str, length: int, *, quoted: bool) -> None:
        self.at += length
        last = pieces[-1] if pieces else None
        if isinstance(last, LiteralText) and last.quoted == quoted:
            pieces[-1] = LiteralText(last.text + text, quoted)
        else:
            pieces.append(LiteralText(text, quoted))

    def _here(self) -> str:
        return repr(self.text[self.at : min(self.at + 12, self.limit)] or "the end")
