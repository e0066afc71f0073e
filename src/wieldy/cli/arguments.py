"""argparse as every command uses it: one-line errors, examples below the options, and common value types."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypeVar

from wieldy.core import console
from wieldy.core.console import print_error
from wieldy.core.errors import WieldyError
from wieldy.core.events import Event, Notice
from wieldy.core.text import did_you_mean

if TYPE_CHECKING:
    from wieldy.engine.toolbox import Toolbox

T = TypeVar("T")


class UsageError(WieldyError):
    """The command line makes no sense; the message says why in one line."""


class HelpFormatter(argparse.RawDescriptionHelpFormatter):
    """Keeps line breaks. Its width is fixed: asking the terminal loads modules that every command would pay for."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, width=100)


_WRONG_WORD = re.compile(r"(?:unrecognized arguments:|unknown option) ([^\s=]+)")


def _words(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield the options and subcommands of a parser and of its subcommands, except those that help leaves out."""
    for action in parser._actions:
        if action.help != argparse.SUPPRESS:
            yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for name, subparser in action.choices.items():
                yield name
                yield from _words(subparser)


class Parser(argparse.ArgumentParser):
    """An argument parser whose errors are one line, and which prints through the console."""

    def _print_message(self, message: str, file: Any = None) -> None:
        write = console.write if file is sys.stdout else console.write_error
        write(message, end="")

    def error(self, message: str) -> NoReturn:
        """Print the error, with the nearest word that would be right, and exit with code 2."""
        word = _WRONG_WORD.match(message)
        hint = did_you_mean(word[1], _words(self)) if word else ""
        console.print_error(f"{message}{hint or ';'} `{self.prog} --help` shows how")
        sys.exit(2)


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
    parser.add_argument("--root", type=folder, default=".", metavar="DIR", help=f"{about} (default: this one)")


def add_mode(parser: argparse.ArgumentParser, option: str = "--mode") -> None:
    """Add an option that takes a permission mode, under both its names."""
    modes = "default, acceptEdits, plan, dontAsk or bypassPermissions"
    other = "--mode" if option == "--permission-mode" else "--permission-mode"
    parser.add_argument(option, other, type=mode, metavar="MODE", help=f"{modes} (default: as in the settings)")


def checked(parse: Callable[[str], T]) -> Callable[[str], T]:
    """Make the message of a `ValueError` that of the option."""

    def convert(text: str) -> T:
        try:
            return parse(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return convert


def folder(path: str) -> str:
    """Accept an existing folder."""
    if not os.path.isdir(path):
        raise argparse.ArgumentTypeError(f"there is no folder {path}")
    return path


@checked
def mode(name: str) -> str:
    """Accept the name of a permission mode."""
    from wieldy.policy.permissions.modes import find_mode

    return find_mode(name).name


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


SETTING_LAYERS = ("user", "project", "local")
NEW_SESSION_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{3,63}")


def new_session_id(text: str) -> str:
    """Accept an id for a new session, which becomes the name of its folder."""
    if not NEW_SESSION_ID.fullmatch(text):
        raise argparse.ArgumentTypeError(f"`{text}` is no id: use 4 to 64 letters, digits, `-` and `_`")
    return text


@checked
def tool_names(text: str) -> tuple[str, ...] | None:
    """Accept names of tools, separated by commas or blanks, also those of Claude Code; None for `default`."""
    from wieldy.core.tool_names import RENAMED_TOOLS
    from wieldy.tools import builtin_loaders

    names = text.replace(",", " ").split()
    if names == ["default"]:
        return None
    return tuple(builtin_loaders([RENAMED_TOOLS.get(name, name) for name in names]))


def setting_layers(text: str) -> tuple[str, ...]:
    """Accept names of layers of settings files, separated by commas; none for an empty text."""
    layers = tuple(name.strip() for name in text.split(",") if name.strip())
    for name in layers:
        if name not in SETTING_LAYERS:
            raise argparse.ArgumentTypeError(f"`{name}` is none of {', '.join(SETTING_LAYERS)}")
    return layers


# Options of Claude Code that have no counterpart, and how many values each takes: "?" is one or none.
IGNORED_OPTIONS: Mapping[str, int | str] = {
    "--agent": 1,
    "--allow-dangerously-skip-permissions": 0,
    "--bare": 0,
    "--betas": 1,
    "--chrome": 0,
    "--debug-file": 1,
    "--disable-slash-commands": 0,
    "--effort": 1,
    "--file": 1,
    "--ide": 0,
    "--init": 0,
    "--maintenance": 0,
    "--mcp-debug": 0,
    "--name": 1,
    "--no-chrome": 0,
    "--plugin-dir": 1,
    "--resume-drops-turn": 1,
    "--resume-session-at": 1,
    "--session-mirror": 0,
    "--task-budget": 1,
    "--teammate-mode": 1,
    "--thinking-display": 1,
    "--tmux": 0,
    "--worktree": "?",
}


class _Ignore(argparse.Action):
    """Notes that an option without effect was given."""

    def __call__(self, parser: Any, options: argparse.Namespace, value: Any, option: str | None = None) -> None:
        options.ignored = [*options.ignored, option]


def add_ignored(parser: argparse.ArgumentParser) -> None:
    """Accept the options of Claude Code that have no effect; `options.ignored` lists those that were given."""
    parser.set_defaults(ignored=[])
    for option, values in IGNORED_OPTIONS.items():
        nargs = values if isinstance(values, str) else None if values == 1 else 0
        parser.add_argument(option, action=_Ignore, nargs=nargs, help=argparse.SUPPRESS)


def is_json(source: str) -> bool:
    return source.lstrip().startswith("{")


def read_json(source: str, what: str) -> dict[str, Any]:
    """Read an object from a file, or from its JSON. Raises `UsageError`."""
    try:
        value = json.loads(source if is_json(source) else Path(source).read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"the {what} {source} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"the {what} are not JSON: {error}") from None
    if not isinstance(value, dict):
        raise UsageError(f"the {what} are not a JSON object")
    return value


def print_settings_problems(box: Toolbox) -> None:
    """Print what is wrong with the settings on stderr: every command does, since a rule may be missing by it."""
    for problem in (*box.settings.errors, *box.settings.warnings):
        print_error(problem)


def with_notices(box: Toolbox) -> Toolbox:
    """Print the problems of its settings and the notices of a toolbox; call it before the toolbox is entered."""
    print_settings_problems(box)
    box.subscribe(_print_notice)
    return box


def _print_notice(event: Event) -> None:
    if isinstance(event, Notice) and not event.data:
        print_error(event.text)
