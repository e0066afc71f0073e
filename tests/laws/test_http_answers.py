"""Our reader of HTTP answers beside h11's: the same answers out of the same bytes, however they are cut."""

from __future__ import annotations

from typing import Any

import h11
from hypothesis import example, given, settings
from hypothesis import strategies as st

from wieldy.providers.http1 import END, Answers, Head, Malformed

TOKENS = st.text("abcdefghijklmnopqrstuvwxyzABC-_.", min_size=1, max_size=12)
VALUES = st.text(st.characters(min_codepoint=0x21, max_codepoint=0xFF, exclude_characters="\x7f"), max_size=20)
FRAMING = {"content-length", "transfer-encoding", "connection", "host"}


@st.composite
def answers(draw: st.DrawFn) -> bytes:
    """A well-formed answer: any framing, extra headers, with or without interim answers before it."""
    interim = b"HTTP/1.1 100 Continue\r\n\r\n" * draw(st.integers(0, 2))
    status = draw(st.sampled_from([200, 204, 304, 400, 429, 500, 599]))
    version = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"]))
    end = draw(st.sampled_from([b"\r\n", b"\n"]))
    body = draw(st.binary(max_size=200))
    extra = draw(st.lists(st.tuples(TOKENS, VALUES), max_size=4))
    lines = [f"{name}: {value}".encode("latin-1") for name, value in extra if name.lower() not in FRAMING]
    if draw(st.booleans()):
        lines.append(b"Connection: " + draw(st.sampled_from([b"close", b"keep-alive", b"Close, x"])))
    framing = draw(st.sampled_from(["length", "chunked", "close"]))
    if status in (204, 304):
        body = b""
    elif framing == "length":
        lines.append(b"Content-Length: %d" % len(body))
    elif framing == "chunked":
        lines.append(b"Transfer-Encoding: Chunked")
        body = draw(chunked(body))
    reason = draw(st.sampled_from([b" OK", b" ", b"", b" Some words"]))
    return interim + end.join([b"HTTP/%s %d%s" % (version, status, reason), *lines, b"", b""]) + body


@st.composite
def chunked(draw: st.DrawFn, body: bytes) -> bytes:
    out = b""
    while body:
        size = draw(st.integers(1, len(body)))
        form = draw(st.sampled_from([b"%x\r\n", b"%X\r\n", b"00%x\r\n", b"%x;a=b\r\n", b"%x \r\n"]))
        out += form % size + body[:size] + b"\r\n"
        body = body[size:]
    return out + b"0\r\n" + draw(st.sampled_from([b"", b"x-end: yes\r\n"])) + b"\r\n"


def cut(data: bytes, places: list[int]) -> list[bytes]:
    at = sorted({place % (len(data) + 1) for place in places})
    return [piece for piece in (data[a:b] for a, b in zip([0, *at], [*at, len(data)], strict=True)) if piece]


def ours(pieces: list[bytes]) -> Any:
    """Status, headers, body, whether it ended before the connection did, whether another request may follow."""
    reader, head, body = Answers(), None, bytearray()
    for piece in [*pieces, b""]:
        reader.feed(piece)
        while (part := reader.take()) is not None:
            if part is END:
                return head, bytes(body), bool(piece), bool(piece) and reader.keeps
            if isinstance(part, Head):
                fields = dict(part.headers)
                if "transfer-encoding" in fields:
                    fields["transfer-encoding"] = fields["transfer-encoding"].lower()  # as h11 gives it
                head = (part.status, fields)
            else:
                assert isinstance(part, bytes)
                body += part
    raise AssertionError("a closed connection ends an answer or breaks it")


def theirs(pieces: list[bytes]) -> Any:
    peer = h11.Connection(h11.CLIENT)
    peer.send(h11.Request(method="POST", target="/", headers=[("host", "x"), ("content-length", "0")]))
    peer.send(h11.EndOfMessage())
    head, body = None, bytearray()
    for piece in [*pieces, b""]:
        peer.receive_data(piece)
        while (event := peer.next_event()) not in (h11.NEED_DATA, h11.PAUSED):
            if isinstance(event, h11.Response):
                fields: dict[str, str] = {}
                for name, value in event.headers:
                    key, told = name.decode(), value.decode("latin-1")
                    fields[key] = f"{fields[key]}, {told}" if key in fields else told
                head = (event.status_code, fields)
            elif isinstance(event, h11.Data):
                body += event.data
            elif isinstance(event, h11.EndOfMessage):
                return head, bytes(body), bool(piece), bool(piece) and peer.our_state is h11.DONE
            elif isinstance(event, h11.ConnectionClosed):
                raise h11.RemoteProtocolError("closed")
    raise h11.RemoteProtocolError("never ended")


@given(answers(), st.lists(st.integers(0, 2000), max_size=8))
@settings(max_examples=400, deadline=None)
def test_both_read_the_same_out_of_an_answer_however_it_is_cut(data, places):
    assert ours(cut(data, places)) == theirs(cut(data, places))


@given(answers(), st.integers(0, 2000))
@settings(max_examples=200, deadline=None)
def test_an_answer_that_breaks_off_is_never_taken_for_a_whole_one(data, at):
    pieces = [data[: at % len(data)]]
    try:
        expected = theirs(pieces)
    except h11.RemoteProtocolError:
        expected = None
    try:
        found = ours(pieces)
    except Malformed:
        found = None
    assert found == expected


@given(answers(), st.integers(0, 2000), st.integers(0, 255))
@example(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n", 0, ord("H"))
@example(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", 0, ord("H"))
@example(b"HTTP/1.1 200 OK\r\nContent-Length: +3\r\n\r\nabc", 0, ord("H"))
@settings(max_examples=400, deadline=None)
def test_where_a_byte_is_damaged_nothing_is_accepted_that_means_something_else_to_another_reader(data, at, byte):
    at %= len(data)
    pieces = [data[:at] + bytes([byte]) + data[at + 1 :]]
    try:
        found = ours(pieces)
    except Malformed:
        return
    try:
        expected = theirs(pieces)
    except h11.RemoteProtocolError:
        return  # we are more patient with what does not matter, such as an odd character in a value
    assert found[:2] == expected[:2]
