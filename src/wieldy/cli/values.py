"""What the value of an option may be. A complaint is one that argparse passes on word for word."""

from __future__ import annotations

import os


def folder(path: str) -> str:
    """A folder that is there."""
    if not os.path.isdir(path):
        raise _unfit(f"there is no folder {path}")
    return path


def mode(name: str) -> str:
    """A permission mode."""
    from wieldy.permissions.mode import mode_named

    try:
        mode_named(name)
    except ValueError as why:
        raise _unfit(str(why)) from None
    return name


def count(text: str) -> int:
    """A whole number from 1."""
    try:
        value = int(text)
    except ValueError:
        raise _unfit(f"`{text}` is no whole number") from None
    if value < 1:
        raise _unfit("must be at least 1")
    return value


def amount(text: str) -> float:
    """A number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise _unfit(f"`{text}` is no amount") from None
    if not value > 0:
        raise _unfit("must be more than 0")
    return value


def _unfit(why: str) -> Exception:
    from argparse import ArgumentTypeError

    return ArgumentTypeError(why)
