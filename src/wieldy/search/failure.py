"""A search that cannot be done as asked."""

from __future__ import annotations


class SearchFailure(Exception):
    """The message says what is wrong and what to do about it."""
