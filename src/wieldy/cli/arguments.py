"""Plain command lines are read without argparse, which takes long to load, from the same declarations.

Whatever is not plain, and whatever is wrong, is left to argparse: it has the words for it, and they are the same everywhere.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, NoReturn, TypeAlias

if TYPE_CHECKING:
    from argparse import ArgumentParser


# Takes what `ArgumentParser.add_argument` takes; an option without help is not shown.
Add: TypeAlias = Callable[..., None]


def tell(parser: ArgumentParser, declare: Callable[[Add], None]) -> None:
    """Tell argparse of the options."""
    from argparse import SUPPRESS

    def add(*names: str, help: str = SUPPRESS, **how: Any) -> None:
        parser.add_argument(*names, help=help, **how)

    declare(add)


def read(declare: Callable[[Add], None], words: Sequence[str]) -> SimpleNamespace | None:
    """A plain command line, `prompt` being all words that are neither options nor their values; None for one to argparse.

    Plain are whole names of options, each with its value in the next word, where that looks like no option.
    """
    found = SimpleNamespace(prompt=[])
    known: dict[str, Mapping[str, Any]] = {}

    def add(*names: str, **how: Any) -> None:
        option = {"dest": _field(names), **how}
        known.update((name, option) for name in names)
        setattr(found, option["dest"], _default(option))

    try:
        declare(add)
        rest = iter(words)
        for word in rest:
            if not word.startswith("-"):
                found.prompt.append(word)
            elif (option := known[word]).get("action") == "store_true":
                setattr(found, option["dest"], True)
            else:
                _take(found, option, next(rest))
    except Exception:  # an option or a value that is wrong, or that is written in another way
        return None
    return found


def _field(names: Sequence[str]) -> str:
    long = next(name for name in names if name.startswith("--"))
    return long.removeprefix("--").replace("-", "_")


def _default(option: Mapping[str, Any]) -> Any:
    action, value = option.get("action"), option.get("default")
    if action == "store_true":
        return False
    if action == "append":
        return []
    return option["type"](value) if isinstance(value, str) and "type" in option else value


def _take(found: SimpleNamespace, option: Mapping[str, Any], word: str) -> None:
    if word.startswith("-") or word not in option.get("choices", (word,)):
        raise ValueError(word)
    value = option.get("type", str)(word)
    if option.get("action") == "append":
        getattr(found, option["dest"]).append(value)
    else:
        setattr(found, option["dest"], value)


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


def folder(path: str) -> str:
    """A folder that is there."""
    if not os.path.isdir(path):
        raise _unfit(f"there is no folder {path}")
    return path


def mode(name: str) -> str:
    """A permission mode."""
    from wieldy.permissions.modes import mode_named

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
