"""Option tables: parse a program's arguments against the options it is accepted with and derive its effects.

A table is written as words. `-abc` are flags, `-n:` takes a value, `-f:r` a file that is read, `-o:w` a file that is written,
`-d?` a value that must be attached, `-#` is a number, `-ci/` one flag of several letters and `-ln/:` one with a value.
`--name`, `--name=`, `--name=r`, `--name=w`, `--name=?` alike; `--name=2` takes two words and `--name=2r` reads the second.
`!--name` is an option that exists and is not accepted: it makes abbreviations that could mean it ambiguous.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.shell.effects.words import ShellState, Word, literal


class ProgramCall(Struct, frozen=True):
    name: str
    args: tuple[Word, ...]
    state: ShellState


class CallEffects(Struct, frozen=True):
    """The effects of one call. Unless `known`, there may be others; `why` says what is not understood.

    `changes`: it changes something. `recursive`: it reads folders with all their files, except those in `not_recursive`;
    `follows_links`: what symlinks in these folders lead to, too.
    `bounded`: it reads only so much of each file as its options say.
    """

    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    fetches: tuple[str, ...] = ()
    known: bool = True
    changes: bool = False
    recursive: bool = False
    not_recursive: tuple[Word, ...] = ()
    follows_links: bool = False
    bounded: bool = False
    why: str = ""

    @property
    def read_only(self) -> bool:
        """Whether the call is proven to change nothing."""
        return self.known and not self.changes and not self.writes and not self.fetches


ProgramCheck: TypeAlias = Callable[[ProgramCall], CallEffects]
NO_EFFECTS = CallEffects()


class UnknownArguments(ValueError):
    """Arguments that are not known to be harmless; the message says why."""


def unknown(why: str) -> CallEffects:
    return CallEffects(known=False, why=why)


def word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# Less than a gigabyte.
_AMOUNT = re.compile(r"\d{1,9}|\d{1,6}[kK](i?B)?|\d{1,3}[mM](i?B)?")
OperandMeaning: TypeAlias = Literal[
    "files", "files or cwd", "text", "none", "pattern then files", "input then output", "written"
]


class ProgramSpec(Struct, frozen=True):
    """A program whose effects follow from its option table and the meaning of its operands.

    `harmless`: none of its options, listed or not, writes or runs anything. `exact`: it does not accept abbreviated options.
    `pattern_options` replace the pattern operand; with `recursive_options` it searches folders, and with `link_options` it
    follows the symlinks in them ("." means always). `bounding_options` say how much of a file it reads.
    """

    options: str
    operands: OperandMeaning
    harmless: bool = False
    exact: bool = False
    pattern_options: tuple[str, ...] = ()
    recursive_options: tuple[str, ...] = ()
    link_options: tuple[str, ...] = ()
    recursive: bool = False
    bounding_options: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        searches = self.operands == "pattern then files"
        if not searches and (self.pattern_options or self.recursive_options):
            raise ValueError(f"a program with {self.operands} has neither a pattern nor options to search folders with")
        if self.recursive and self.operands != "files":
            raise ValueError(f"`recursive` says nothing about a program with {self.operands}")
        table = option_table(self.options)
        for name in (*self.pattern_options, *self.recursive_options, *self.link_options, *self.bounding_options):
            if name != "." and name.lstrip("-") not in (*table.short, *table.long):
                raise ValueError(f"`{name}` is none of the options")

    def __call__(self, call: ProgramCall) -> CallEffects:
        args = parse_args(call.args, option_table(self.options, harmless=self.harmless, exact=self.exact))
        effects = self._effects(args)
        if any(word.kind == "literal" and _AMOUNT.fullmatch(word.text) for word in args.values(*self.bounding_options)):
            effects = replace(effects, bounded=True)
        follows_links = args.has(*self.link_options) or "." in self.link_options
        return replace(effects, follows_links=True) if follows_links else effects

    def _effects(self, args: ParsedArgs) -> CallEffects:
        files = _without_dash(args.operands)
        match self.operands:
            case "files":
                return CallEffects((*args.reads, *files), tuple(args.writes), recursive=self.recursive)
            case "files or cwd":
                return CallEffects((*args.reads, *(files or (literal("."),))), tuple(args.writes))
            case "text":
                return CallEffects(tuple(args.reads), tuple(args.writes))
            case "none":
                if args.operands:
                    return unknown(f"what it does with the operand `{args.operands[0].source}` is not known")
                return CallEffects(tuple(args.reads), tuple(args.writes))
            case "pattern then files":
                return self._pattern_then_files(args)
            case "input then output":
                if len(args.operands) > 2 or any(word.kind in ("multiple", "glob") for word in args.operands):
                    return unknown("which file is read and which is written is not known in advance")
                source, target = _without_dash(args.operands[:1]), _without_dash(args.operands[1:])
                return CallEffects((*args.reads, *source), (*args.writes, *target))
            case "written":
                return CallEffects(tuple(args.reads), (*args.writes, *files), changes=True)

    def _pattern_then_files(self, args: ParsedArgs) -> CallEffects:
        operands = args.operands
        if not args.has(*self.pattern_options):
            if operands and operands[0].kind in ("multiple", "glob"):
                return unknown(f"`{operands[0].source}` could become several words")
            if operands and operands[0].may_be_option and not args.options_ended:
                return unknown(f"`{operands[0].source}` could become an option")
            operands = operands[1:]
        files = _without_dash(operands)
        recursive = args.has(*self.recursive_options) or "." in self.recursive_options
        if not files and recursive:
            files = (literal("."),)
        return CallEffects((*args.reads, *files), tuple(args.writes), recursive=recursive)


def _without_dash(words: list[Word]) -> tuple[Word, ...]:
    """The words that are files: a lone dash is the standard input or output."""
    return tuple([word for word in words if not (word.kind == "literal" and word.text in ("-", ""))])


class Option(Struct, frozen=True):
    """How many values an option takes and what they mean: `t` text, `r` read, `w` written."""

    name: str
    values: int = 0
    attached: bool = False
    meaning: str = "t"


class OptionTable(Struct, frozen=True):
    """The accepted options of one program; the flags mean the same as those of `ProgramSpec`."""

    short: dict[str, Option]
    long: dict[str, Option]
    refused: frozenset[str]
    number: bool
    harmless: bool = False
    exact: bool = False
    stops_at_operand: bool = False


@cache
def option_table(
    spec: str, *, harmless: bool = False, exact: bool = False, stops_at_operand: bool = False
) -> OptionTable:
    """The table that a line of words describes."""
    short: dict[str, Option] = {}
    long: dict[str, Option] = {}
    refused: set[str] = set()
    number = False
    for item in spec.split():
        if item.startswith("!--"):
            refused.add(item[3:])
        elif item == "-#":
            number = True
        elif item.startswith("--"):
            name, equals, how = item[2:].partition("=")
            long[name] = _option("--" + name, equals, how)
        elif item.endswith(("/", "/:")):
            name, _, takes = item[1:].partition("/")
            short[name] = _option("-" + name, takes, "")
        elif item[2:3] == ":" or item[2:] == "?":
            short[item[1]] = _option("-" + item[1], item[2], item[3:] or item[2:].replace(":", ""))
        else:
            short.update((flag, Option("-" + flag)) for flag in item[1:])
    return OptionTable(short, long, frozenset(refused), number, harmless, exact, stops_at_operand)


def _option(name: str, takes: str, how: str) -> Option:
    if not takes:
        return Option(name)
    if how == "?":
        return Option(name, 1, attached=True)
    return Option(name, 2 if how.startswith("2") else 1, meaning=how.lstrip("2") or "t")


class ParsedArgs:
    """Options with their values, the files they read and write, and operands; `options_ended`: `--` stood before these."""

    __slots__ = ("operands", "options", "options_ended", "reads", "writes")

    def __init__(self) -> None:
        self.options: dict[str, list[Word | None]] = {}
        self.reads: list[Word] = []
        self.writes: list[Word] = []
        self.operands: list[Word] = []
        self.options_ended = False

    def has(self, *names: str) -> bool:
        return any(name in self.options for name in names)

    def values(self, *names: str) -> list[Word]:
        """The values given to these options."""
        return [word for name in names for word in self.options.get(name, []) if word is not None]

    def add(self, option: Option, values: list[Word]) -> None:
        if any(value.kind == "multiple" for value in values):
            raise UnknownArguments(f"the value of `{option.name}` is not known in advance")
        self.options.setdefault(option.name, []).append(values[-1] if values else None)
        if values and option.meaning == "r":
            self.reads.append(values[-1])
        elif values and option.meaning == "w":
            self.writes.append(values[-1])


def parse_args(args: tuple[Word, ...], table: OptionTable) -> ParsedArgs:
    """Sort the arguments into options and operands. Raises `UnknownArguments`."""
    parsed = ParsedArgs()
    rest = iter(args)
    for word in rest:
        if word.kind == "literal" and word.text == "--":
            parsed.options_ended = not parsed.operands
            parsed.operands.extend(rest)
        elif not word.may_be_option or (word.kind == "literal" and word.text == "-"):
            parsed.operands.append(word)
            if table.stops_at_operand:
                parsed.operands.extend(rest)
        elif not word.prefix:
            if not table.harmless:
                raise UnknownArguments(f"{word.shown} could become an option")
            parsed.operands.append(word)
        elif word.prefix.startswith("--"):
            _parse_long(word, rest, table, parsed)
        else:
            _parse_short(word, rest, table, parsed)
    return parsed


def _parse_long(word: Word, rest: Iterator[Word], table: OptionTable, parsed: ParsedArgs) -> None:
    name, equals, value = word.prefix[2:].partition("=")
    option = _long_option(name, table) if equals or word.kind == "literal" else None
    if option is None or (equals and not option.values):
        raise UnknownArguments(f"the option `{word.source}` may do more than read")
    if equals:
        parsed.add(option, [attached_value(word, len(word.prefix) - len(value))])
    else:
        _parse_values(option, rest, table, parsed)


def _long_option(name: str, table: OptionTable) -> Option | None:
    if name in table.long:
        return table.long[name]
    if table.exact or name in table.refused:
        return None
    matches = [key for key in (*table.long, *table.refused) if key.startswith(name)]
    return table.long.get(matches[0]) if len(matches) == 1 else None


def _parse_short(word: Word, rest: Iterator[Word], table: OptionTable, parsed: ParsedArgs) -> None:
    if table.number and word.kind == "literal" and word.text[1:].isdecimal():
        parsed.options.setdefault("-#", []).append(word)
        return
    name, equals, value = word.prefix[1:].partition("=")
    whole = table.short.get(name) if len(name) > 1 and (equals or word.kind == "literal") else None
    if whole is not None and equals and whole.values:
        parsed.add(whole, [attached_value(word, len(word.prefix) - len(value))])
        return
    if whole is not None and not equals:
        _parse_values(whole, rest, table, parsed)
        return
    for index, flag in enumerate(word.prefix[1:], 1):
        option = table.short.get(flag)
        if option is None:
            raise UnknownArguments(f"the option `-{flag}` in `{word.source}` may do more than read")
        if not option.values:
            parsed.add(option, [])
        elif index + 1 < len(word.prefix) or word.kind != "literal":
            parsed.add(option, [attached_value(word, index + 1)])
            return
        else:
            _parse_values(option, rest, table, parsed)
    if word.kind != "literal":
        raise UnknownArguments(f"`{word.source}` could become other options")


def attached_value(word: Word, start: int) -> Word:
    return Word(word.source[start:], word.kind, word.text[start:], word.prefix[start:])


def _parse_values(option: Option, rest: Iterator[Word], table: OptionTable, parsed: ParsedArgs) -> None:
    count = 0 if option.attached else option.values
    values = [word for _, word in zip(range(count), rest, strict=False)]
    if len(values) < count:
        raise UnknownArguments(f"the option `{option.name}` lacks its value")
    if any(value.kind == "glob" for value in values) and not table.harmless:
        raise UnknownArguments(f"the value of `{option.name}` could become several")
    parsed.add(option, values)
