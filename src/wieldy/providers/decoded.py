"""One event of a stream, from bytes to a typed record; half characters and stray bytes are no obstacle."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TypeVar

import msgspec

from wieldy.core.provider import ProviderFailure

T = TypeVar("T")


def decoded(data: bytes, kind: type[T], decode: Callable[[bytes], T]) -> T:
    """The record in some bytes. Raises `ProviderFailure` for what is none."""
    try:
        return decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError):
        # Halves of a character in an escape are legal JSON, and refused by the fast reader.
        try:
            return msgspec.convert(json.loads(data.decode("utf-8", "replace")), kind)
        except (ValueError, RecursionError) as error:
            raise ProviderFailure("protocol", f"the stream holds something that is no event: {error}") from None
