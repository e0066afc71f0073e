"""The client's side of HTTP/1.1: a request's head to bytes, answers out of bytes. No input or output of its own.

An answer's body ends where its length, its last chunk, or the connection says. What is ambiguous is refused, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Literal

from msgspec import Struct

MOST_HEAD = 64 * 1024
MOST_CHUNK_LINE = 4096

_TOKEN = frozenset(b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")
_HEX = frozenset(b"0123456789abcdefABCDEF")

Where = Literal["head", "length", "chunk", "chunk end", "chunk size", "trailers", "until closed", "done"]


class Malformed(Exception):
    """The bytes are no answer; the text says why."""


class Head(Struct, frozen=True):
    """A status and headers, names in lower case; the body is still to come."""

    status: int
    headers: Mapping[str, str]


class End:
    """The end of an answer."""


END = End()


class Answers:
    """The answers of one connection. Feed it bytes (none: the connection was closed) and take what they hold."""

    __slots__ = ("_closed", "_left", "_waiting", "keeps", "where")

    def __init__(self) -> None:
        self.where: Where = "head"
        self.keeps = True  # whether the server goes on listening after this answer
        self._waiting = bytearray()
        self._left = 0
        self._closed = False

    @property
    def begun(self) -> bool:
        """Whether anything of an answer has come."""
        return self.where != "head" or bool(self._waiting)

    @property
    def reusable(self) -> bool:
        """Whether another request may follow: the answer is over, and nothing came that nobody asked for."""
        return self.where == "done" and self.keeps and not self._waiting and not self._closed

    def again(self) -> None:
        """Expect the answer to another request."""
        self.where = "head"

    def feed(self, data: bytes | memoryview) -> int:
        """Bytes as they came; none when the connection was closed. Returns how many wait to be taken."""
        self._waiting += data
        if not data:
            self._closed = True
        return len(self._waiting)

    def raw(self, end: bytes) -> bytes | None:
        """What has come up to some bytes, as it is, and those; None when more is needed. Raises `Malformed`."""
        at = self._waiting.find(end, 0, MOST_HEAD)
        if at < 0:
            if len(self._waiting) >= MOST_HEAD:
                raise Malformed(f"nothing ends within {MOST_HEAD // 1024} KB")
            self._need_more()
            return None
        found = bytes(self._waiting[: at + len(end)])
        del self._waiting[: at + len(end)]
        return found

    def take(self) -> Head | bytes | End | None:
        """The next part of the answer, or None when more bytes are needed. Raises `Malformed`."""
        while True:
            where = self.where
            if where in ("chunk", "chunk end", "chunk size"):
                if (data := self._chunks()) or self.where != "trailers":
                    return data or None
            elif where in ("length", "until closed"):
                return self._body()
            elif where == "done":
                return END
            elif where == "trailers":
                if not self._trailers():
                    return None
            else:
                head = self._head()
                if head is None or head.status >= 200:
                    return head

    def _head(self) -> Head | None:
        lines = self._lines()
        if lines is None:
            return None
        version, status = _status(lines[0])
        fields = _fields(lines[1:])
        if status == 101:
            raise Malformed("it changes the protocol, which nobody asked for")
        if status >= 200:
            self.keeps = version == b"1" and b"close" not in _listed(fields.get("connection", ""))
            self.where = self._framing(status, fields)
        return Head(status, fields)

    def _framing(self, status: int, fields: Mapping[str, str]) -> Where:
        """Where the body ends (RFC 9112, section 6.3)."""
        if status in (204, 304):
            return "done"
        if "transfer-encoding" in fields:
            if _listed(fields["transfer-encoding"]) != [b"chunked"]:
                raise Malformed(f"its transfer encoding is {fields['transfer-encoding'][:40]!r}")
            if "content-length" in fields:
                self.keeps = False
            return "chunk size"
        if "content-length" not in fields:
            self.keeps = False
            return "until closed"
        lengths = set(_listed(fields["content-length"]))
        length = lengths.pop()
        if lengths or not length.isdigit() or len(length) > 19:
            raise Malformed(f"its length is {fields['content-length'][:40]!r}")
        self._left = int(length)
        return "length" if self._left else "done"

    def _chunks(self) -> bytes:
        """The data of all chunks that have come, as one piece; nothing where more bytes are needed, or none will come."""
        found: list[bytes] = []
        try:
            while self.where != "trailers":
                if self.where != "chunk":
                    if not self._between_chunks():
                        break
                elif isinstance(data := self._body(), bytes):
                    found.append(data)
                else:
                    break
        except Malformed:
            if not found:
                raise  # else it is found again by whoever wants more than this
        return b"".join(found) if len(found) != 1 else found[0]

    def _body(self) -> bytes | End | None:
        if not self._waiting:
            if self._closed and self.where == "until closed":
                self.where = "done"
                return END
            self._need_more()
            return None
        most = len(self._waiting) if self.where == "until closed" else self._left
        data = bytes(self._waiting[:most])
        del self._waiting[:most]
        if self.where != "until closed":
            self._left -= len(data)
            if not self._left:
                self.where = "done" if self.where == "length" else "chunk end"
        return data

    def _between_chunks(self) -> bool:
        """Pass over what stands between the data of two chunks; false when more bytes are needed."""
        waiting, start = self._waiting, 0
        if self.where == "chunk end":
            start = 2 if waiting.startswith(b"\r\n") else 1 if waiting.startswith(b"\n") else 0
            if not start and bytes(waiting[:2]) not in (b"", b"\r"):
                raise Malformed("a chunk is longer than it says")
        end = waiting.find(b"\n", start, start + MOST_CHUNK_LINE)
        if end < 0:
            if len(waiting) >= start + MOST_CHUNK_LINE:
                raise Malformed("a line between two chunks does not end")
            self._need_more()
            return False
        line = bytes(waiting[start:end]).removesuffix(b"\r")
        size = line.partition(b";")[0].strip(b" \t")
        if not size or len(size) > 16 or not _HEX.issuperset(size):
            raise Malformed(f"a chunk's size is {line[:40]!r}")
        del waiting[: end + 1]
        self._left = int(size, 16)
        self.where = "chunk" if self._left else "trailers"
        return True

    def _trailers(self) -> bool:
        """Pass over what comes after the last chunk; false when more bytes are needed."""
        lines = self._lines()
        if lines is None:
            return False
        _fields(lines)
        self.where = "done"
        return True

    def _lines(self) -> list[bytes] | None:
        """The lines up to an empty one, which is taken too."""
        lines: list[bytes] = []
        start = 0
        while (end := self._waiting.find(b"\n", start, MOST_HEAD)) >= 0:
            line = bytes(self._waiting[start:end]).removesuffix(b"\r")
            start = end + 1
            if not line:
                del self._waiting[:start]
                return lines if lines or self.where == "trailers" else self._refuse_empty()
            lines.append(line)
        if len(self._waiting) >= MOST_HEAD:
            raise Malformed(f"its head is longer than {MOST_HEAD // 1024} KB")
        self._need_more()
        return None

    def _refuse_empty(self) -> list[bytes]:
        raise Malformed("it begins with an empty line")

    def _need_more(self) -> None:
        if self._closed:
            raise Malformed("the connection was closed in the middle of the answer")


def request_head(method: str, target: str, headers: Mapping[str, str]) -> bytes:
    """The head of a request. Raises `ValueError` with the name of what cannot stand in one."""
    if not target.isascii() or not target.isprintable() or " " in target:
        raise ValueError("the address")
    for name, value in headers.items():
        # A line end in a value would be a header of its own.
        if not value.isascii() or not value.replace("\t", " ").isprintable():
            raise ValueError(f"the header {name}")
    lines = (f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items()), "", "")
    return "\r\n".join(lines).encode("ascii")


def _status(line: bytes) -> tuple[bytes, int]:
    """The minor version and the status of a status line."""
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not code.isdigit() or len(code) < 3 or rest[3:4] not in (b"", b" "):
        raise Malformed(f"it begins with {line[:40]!r}")
    if code < b"100":
        raise Malformed(f"its status is {code.decode()}")
    return version[-1:], int(code)


def _fields(lines: Iterable[bytes]) -> dict[str, str]:
    """Headers by name; those that come several times are joined."""
    fields: dict[str, str] = {}
    for line in _unfolded(lines):
        name, colon, value = line.partition(b":")
        if not colon or not name or not _TOKEN.issuperset(name):
            raise Malformed(f"it holds a header like {line[:40]!r}")
        if b"\0" in value or b"\r" in value:
            raise Malformed(f"its header {name.decode()} holds a control character")
        key, told = name.decode("ascii").lower(), value.strip(b" \t").decode("latin-1")
        fields[key] = f"{fields[key]}, {told}" if key in fields else told
    return fields


def _unfolded(lines: Iterable[bytes]) -> list[bytes]:
    """The lines with those that go on from the one before joined to it."""
    whole: list[bytes] = []
    for line in lines:
        if line[:1] not in (b" ", b"\t"):
            whole.append(line)
        elif whole:
            whole[-1] += b" " + line.strip(b" \t")
        else:
            raise Malformed("its first header begins with a blank")
    return whole


def _listed(value: str) -> list[bytes]:
    return [part.strip().lower().encode("latin-1") for part in value.split(",")]
