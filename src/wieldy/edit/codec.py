"""Text to bytes and back, for any bytes: what does not decode is carried through as lone surrogates and never lost."""

from __future__ import annotations

from functools import cached_property, lru_cache

from wieldy.core.failure import ToolFailure
from wieldy.core.record import record
from wieldy.text.encoding import Encoding

# Every byte (or, in UTF-8, every character's bytes) stands for itself wherever it occurs, so needles can be looked for
# in the bytes. In the others a needle's bytes may turn up across two characters.
MULTIBYTE = frozenset({"gb18030", "gbk", "gb2312", "cp932", "shift_jis", "euc_jp", "euc_jis_2004"}) | frozenset(
    {"big5", "big5hkscs", "cp949", "cp950", "euc_kr", "johab", "euc_jisx0213", "shift_jis_2004", "shift_jisx0213"}
)
NAMED_AT_MOST = 5
LONGEST_CHARACTER = 4


class SplitsCharacter(Exception):
    """A place between two code points that one indivisible byte sequence stands for."""


@record
class Codec:
    """A file's encoding at work."""

    encoding: Encoding

    @property
    def name(self) -> str:
        """The Python codec."""
        return self.encoding.name

    @cached_property
    def unit(self) -> int:
        """How many bytes a line feed takes."""
        return self.encoding.unit

    @cached_property
    def errors(self) -> str:
        """The error handler that keeps undecodable units apart, one code point each."""
        return "surrogateescape" if self.unit == 1 else "surrogatepass"

    @cached_property
    def bytewise(self) -> bool:
        """Whether a text can be looked for by its bytes."""
        return self.unit == 1 and self.name.lower().replace("-", "_") not in MULTIBYTE

    @cached_property
    def newline(self) -> bytes:
        """A line feed."""
        return "\n".encode(self.name)

    @cached_property
    def carriage_return(self) -> bytes:
        """A carriage return."""
        return "\r".encode(self.name)

    def decode(self, data: bytes) -> str:
        """The text of some bytes; a last unit that is cut off is left out."""
        try:
            return data[: len(data) - len(data) % self.unit].decode(self.name, self.errors)
        except UnicodeDecodeError as error:
            raise ToolFailure(
                f"The file is marked as {self.name} but holds bytes at offset {error.start} that are not; "
                "it cannot be edited as text. Convert it with a shell command first."
            ) from error

    def encode(self, text: str) -> bytes:
        """The bytes of a text that came from `decode` or passed `require`."""
        return text.encode(self.name, self.errors)

    def needle(self, text: str) -> bytes | None:
        """The bytes of a text to look for, or None where the encoding cannot hold it."""
        try:
            return text.encode(self.name)
        except UnicodeEncodeError:
            return None

    def require(self, text: str, what: str = "new_string") -> None:
        """Refuse a text this encoding cannot hold, naming the characters it lacks."""
        if text.isascii() or self.needle(text) is not None:
            return
        lacking = dict.fromkeys(char for char in text if not char.isascii() and self.needle(char) is None)
        named = ", ".join(_named(char, text) for char in list(lacking)[:NAMED_AT_MOST])
        more = f" and {len(lacking) - NAMED_AT_MOST} more" if len(lacking) > NAMED_AT_MOST else ""
        if self.name.startswith("utf"):
            reason, way = "half of a surrogate pair is no character", "Send the whole character"
        else:
            reason, way = f"the file is kept in {self.name}, which has no such character", "Use characters it has"
        raise ToolFailure(
            f"{what} holds {named}{more}, but {reason}. Nothing was written. {way}"
            + ("." if self.name.startswith("utf") else ", or convert the file to UTF-8 first.")
        )

    def width(self, line: bytes, count: int) -> int:
        """How many bytes the first `count` characters of a line take."""
        if count <= 0:
            return 0
        if self.bytewise and (self.name != "utf-8" or line.isascii()):
            return count
        if self.bytewise or self.unit > 1:
            return len(self.encode(self.decode(line)[:count]))
        return self._walked(line, count)

    def _walked(self, line: bytes, count: int) -> int:
        """Stretch by stretch, good ones and those that do not decode, in which every escaped byte is a character."""
        view, at, seen = memoryview(line), 0, 0
        while at < len(line):
            try:
                good, stop, beyond = str(view[at:], self.name), len(line), len(line)
            except UnicodeDecodeError as error:
                stop, beyond = at + error.start, at + error.end
                good = str(view[at:stop], self.name)
            if seen + len(good) >= count:
                return at + self._good_width(line[at:stop], good, count - seen)
            bad = _escaped(line[stop:beyond])
            seen += len(good)
            if seen + bad >= count:
                return stop + count - seen
            seen, at = seen + bad, stop + bad
        return len(line)

    def _good_width(self, good: bytes, text: str, count: int) -> int:
        """By encoding again; character by character where the bytes are another way to write the same."""
        width = len(text[:count].encode(self.name))
        if self.needle(text[:count]) == good[:width]:
            return width
        at = seen = 0
        while seen < count:
            width = next(n for n in range(1, LONGEST_CHARACTER + 1) if self._is_character(good[at : at + n]))
            seen, at = seen + len(good[at : at + width].decode(self.name)), at + width
        if seen > count:
            raise SplitsCharacter
        return at

    def _is_character(self, piece: bytes) -> bool:
        try:
            return bool(piece.decode(self.name))
        except UnicodeDecodeError:
            return False


@lru_cache(maxsize=64)
def codec_of(name: str) -> Codec:
    """The codec of an encoding's name, which finds out once what it is like."""
    return Codec(Encoding(name))


def _escaped(bad: bytes) -> int:
    """How many bytes at the start of an undecodable stretch become characters of their own: ASCII is tried again."""
    return next((n for n, byte in enumerate(bad) if byte < 0x80), len(bad))


def _named(char: str, text: str) -> str:
    at = text.index(char)
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    shown = f"{char!r} " if not "\ud800" <= char <= "\udfff" else ""
    return f"{shown}(U+{ord(char):04X}, line {line}, column {column})"
