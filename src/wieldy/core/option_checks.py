"""Checks of the options of public constructors: a wrong one raises where it is given."""

from __future__ import annotations

from typing import Any


def require_count(name: str, value: Any, *, least: int = 1) -> None:
    """Raise `ValueError` unless a value is None or a whole number of at least `least`."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise ValueError(f"`{name}` must be a whole number from {least} on, not {value!r}")


def require_amount(name: str, value: Any) -> None:
    """Raise `ValueError` unless a value is None or a number above 0."""
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or not value > 0):
        raise ValueError(f"`{name}` must be a number above 0, not {value!r}")


def require_seconds(name: str, value: Any) -> None:
    """Raise `ValueError` unless a value is a number of seconds, perhaps 0."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not value >= 0:
        raise ValueError(f"`{name}` must be a number of seconds, not {value!r}")


def require_callable(name: str, value: Any, *, or_text: str | None = None) -> None:
    """Raise `TypeError` unless a value is None, a function, or this text."""
    if value is None or callable(value) or (or_text is not None and value == or_text):
        return
    other = f", or {or_text!r}" if or_text else ""
    raise TypeError(f"`{name}` must be a function{other}, not {value!r}")


def require_model(name: str, value: Any) -> None:
    """Raise `TypeError` unless a value is None, the name of a model, or a model object."""
    if value is not None and not isinstance(value, str) and not callable(getattr(value, "stream", None)):
        raise TypeError(f"`{name}` must be `provider/name` or a model object, not {value!r}")
