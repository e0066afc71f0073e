from __future__ import annotations

import gzip
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.errors import ToolFailure
from wieldy.web.fetch import content_decoder

ENCODINGS = ("gzip", "members", "deflate", "raw", "")


def packed(data: bytes, encoding: str) -> bytes:
    if encoding == "raw":
        packer = zlib.compressobj(wbits=-15)
        return packer.compress(data) + packer.flush()
    if encoding == "gzip":
        return gzip.compress(data)
    if encoding == "members":
        return gzip.compress(data[:7]) + gzip.compress(data[7:])
    return zlib.compress(data) if encoding else data


@settings(max_examples=200, deadline=None)
@given(
    st.binary(max_size=2000),
    st.sampled_from(ENCODINGS),
    st.lists(st.integers(1, 50), max_size=20),
    st.integers(0, 3000),
)
def test_however_a_body_is_cut_into_pieces_it_unpacks_to_the_same_within_the_limit(
    data: bytes, encoding: str, sizes: list[int], most: int
) -> None:
    body = packed(data, encoding)
    unpack, got = content_decoder({"raw": "deflate", "members": "gzip"}.get(encoding, encoding)), b""
    for size in [*sizes, len(body)]:
        piece, body = body[:size], body[size:]
        got += unpack.feed(piece, most - len(got))
        if len(got) >= most:
            break
    else:
        assert unpack.is_complete
    assert got == data[:most]


def test_an_encoding_that_was_not_asked_for_is_named() -> None:
    with pytest.raises(ToolFailure, match="`zstd`"):
        content_decoder("zstd")
