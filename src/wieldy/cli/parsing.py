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
