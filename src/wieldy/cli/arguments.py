"""argparse as every command uses it: one-line errors, examples below the options, and common value types."""

from __future__ import annotations

import argparse
import os
from typing import Any, NoReturn


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks. Its width is fixed: asking the terminal loads modules that every command would pay for."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with code 2."""
        self.exit(2, f"wieldy: {message}; `{self.prog} --help` shows how\n")


def command_parser(prog: str, about: str, examples: str, *, allow_abbrev: bool = True) -> Parser:
    """Create the parser of a command; its help ends with the examples."""
    return Parser(
        prog=prog,
        description=about,
        epilog=examples,
        formatter_class=HelpFormatter,
        allow_abbrev=allow_abbrev,
    )


def add_subcommand(subcommands: Any, name: str, about: str, example: str) -> argparse.ArgumentParser:
    """Add a subcommand to what `add_subparsers` returned; `example` is its line without `wieldy`."""
    parser: argparse.ArgumentParser = subcommands.add_parser(
        name,
        help=about,
        description=f"{about[0].upper()}{about[1:]}.",
        epilog=f"example:\n  wieldy {example}",
        formatter_class=HelpFormatter,
    )
    return parser


def add_root(parser: argparse.ArgumentParser, about: str = "the folder to work in") -> None:
    """Add `--root DIR`."""
    parser.add_argument("--root", type=folder, default=".", metavar="DIR", help=f"{about} (default: this one)")


def add_mode(parser: argparse.ArgumentParser, option: str = "--mode") -> None:
    """Add an option that takes a permission mode, under both its names."""
    modes = "default, acceptEdits, plan, dontAsk or bypassPermissions"
    other = "--mode" if option == "--permission-mode" else "--permission-mode"
    parser.add_argument(option, other, type=mode, metavar="MODE", help=f"{modes} (default: as in the settings)")


def folder(path: str) -> str:
    """Accept an existing folder."""
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no folder {path}")
    return path


def mode(name: str) -> str:
    """Accept the name of a permission mode."""
    from wieldy.permissions.modes import find_mode

    try:
        return find_mode(name).name
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def session_id(text: str) -> str:
    """Accept the id of a session, or the beginning of one."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the id of a session is missing; `wieldy sessions` lists them")
    return text.strip()


def count(text: str) -> int:
    """Accept a whole number of at least 1."""
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a whole number") from None
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def amount(text: str) -> float:
    """Accept a number above 0."""
    try:
        value = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"`{text}` is not a number") from None
    if not value > 0:
        raise argparse.ArgumentTypeError("must be more than 0")
    return value
