"""HTTP/1.1 without a network: heads that cannot be sent, answers that must not be believed."""

from __future__ import annotations

import pytest

from wieldy.providers.http1 import END, Answers, Head, Malformed, request_head


def read(data: bytes) -> list[object]:
    reader = Answers()
    reader.feed(data)
    parts: list[object] = []
    while (part := reader.take()) is not None:
        parts.append(part)
        if part is END:
            break
    return parts


def test_a_request_head_is_lines_and_an_empty_one():
    assert request_head("POST", "/v1", {"host": "h", "x": "a b"}) == b"POST /v1 HTTP/1.1\r\nhost: h\r\nx: a b\r\n\r\n"


@pytest.mark.parametrize("value", ["key\n", "key\r\nx: y", "a\0b", "schlüssel"])
def test_a_header_that_would_be_two_or_none_is_named_and_not_sent(value):
    with pytest.raises(ValueError, match="the header x-api-key"):
        request_head("POST", "/", {"x-api-key": value})


@pytest.mark.parametrize("target", ["/a b", "/a\r\nhost: y", "/ü"])
def test_a_target_with_anything_unprintable_is_not_sent(target):
    with pytest.raises(ValueError, match="the address"):
        request_head("POST", target, {})


def test_an_interim_answer_is_passed_over():
    data = b"HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 204 No Content\r\n\r\n"
    assert read(data) == [Head(204, {}), END]


@pytest.mark.parametrize(
    "data",
    [
        b"SSH-2.0-OpenSSH_9.2\r\n\r\n",
        b"\r\nHTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/2 200\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 101 Switching Protocols\r\nupgrade: x\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nname : value\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n folded: first\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nno colon\r\n\r\n",
        b"HTTP/1.1 200 OK\r\na: b\0c\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 1, 2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: \xb2\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0x1\r\na\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nab\r\n",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + b"1" * 5000,
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 70_000,
    ],
)
def test_what_is_no_answer_is_refused(data):
    with pytest.raises(Malformed):
        read(data)


def test_headers_said_twice_are_joined_and_folded_lines_go_on():
    head = read(b"HTTP/1.1 204 x\r\nA: 1\r\na: 2\r\n  three\r\n\r\n")[0]
    assert head == Head(204, {"a": "1, 2 three"})


def test_a_connection_is_reusable_when_its_answer_is_over_and_nothing_else_came():
    whole = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi"
    for data, reusable in ((whole, True), (whole + b"HTTP", False), (whole.replace(b"1.1", b"1.0"), False)):
        reader = Answers()
        reader.feed(data)
        while reader.take() is not END:
            pass
        assert reader.reusable is reusable


def test_a_reusable_connection_that_was_closed_since_is_not():
    reader = Answers()
    reader.feed(b"HTTP/1.1 204 x\r\n\r\n")
    while reader.take() is not END:
        pass
    reader.feed(b"")
    assert not reader.reusable
