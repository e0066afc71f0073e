"""The parser of one command: its examples as they are written, its width without a detour."""

from __future__ import annotations

import argparse
import os
import sys
from functools import partial
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """A parser whose complaints are one line."""

    def error(self, message: str) -> NoReturn:
        """Say what is wrong and end with code 2."""
        self.exit(2, f"wieldy: {message}; `{self.prog} --help` shows how\n")


def folder(path: str) -> str:
    """A folder that is there, as the value of an option."""
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no folder {path}")
    return path


def mode(name: str) -> str:
    """A permission mode, as the value of an option."""
    from wieldy.permissions.mode import mode_named

    try:
        mode_named(name)
    except ValueError as why:
        raise argparse.ArgumentTypeError(str(why)) from None
    return name


def count(text: str) -> int:
    """A whole number from 1, as the value of an option."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is no whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def amount(text: str) -> float:
    """A number above 0, as the value of an option."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is no amount") from None
    if not value > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def command_parser(prog: str, about: str, examples: str, *, allow_abbrev: bool = True) -> argparse.ArgumentParser:
    """A parser that shows its examples below the options."""
    # Left to itself, argparse loads half a dozen modules to ask how wide the terminal is.
    layout = partial(argparse.RawDescriptionHelpFormatter, width=_width())
    return Parser(prog=prog, description=about, epilog=examples, formatter_class=layout, allow_abbrev=allow_abbrev)


def _width() -> int:
    try:
        return max(os.get_terminal_size(sys.__stdout__.fileno()).columns - 2, 40)  # type: ignore[union-attr]
    except (OSError, ValueError, AttributeError):
        return 100
