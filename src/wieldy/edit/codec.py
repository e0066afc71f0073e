"""Text to bytes and back, for any bytes: what does not decode is carried through as lone surrogates and never lost."""

from __future__ import annotations

import codecs
from dataclasses import dataclass
from functools import cached_property

from wieldy.core.failure import ToolFailure
from wieldy.text.encoding import Encoding

# Every byte (or, in UTF-8, every character's bytes) stands for itself wherever it occurs, so needles can be looked for
# in the bytes. In the others a needle's bytes may turn up across two characters.
MULTIBYTE = frozenset({"gb18030", "gbk", "gb2312", "cp932", "shift_jis", "euc_jp", "euc_jis_2004"}) | frozenset(
    {"big5", "big5hkscs", "cp949", "cp950", "euc_kr", "johab", "euc_jisx0213", "shift_jis_2004", "shift_jisx0213"}
)
NAMED_AT_MOST = 5


class SplitsCharacter(Exception):
    """A place between two code points that one indivisible byte sequence stands for."""


@dataclass(frozen=True)
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
        """By feeding a decoder byte after byte: the same character may be written in more than one way."""
        decoder = codecs.getincrementaldecoder(self.name)(self.errors)
        seen, whole = 0, 0
        for end in range(1, len(line) + 1):
            piece = decoder.decode(line[end - 1 : end], final=end == len(line))
            if seen + len(piece) > count:
                return whole + _escaped(piece[: count - seen])
            seen, whole = seen + len(piece), end - len(decoder.getstate()[0])
            if seen == count:
                return whole
        return len(line)


def _escaped(chars: str) -> int:
    if all("\udc80" <= char <= "\udcff" for char in chars):
        return len(chars)
    raise SplitsCharacter


def _named(char: str, text: str) -> str:
    at = text.index(char)
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    shown = f"{char!r} " if not "\ud800" <= char <= "\udfff" else ""
    return f"{shown}(U+{ord(char):04X}, line {line}, column {column})"
