"""Reading a program's arguments against a table of the options it is accepted with.

A table is written as words. `-abc` are flags, `-n:` takes a value, `-f:r` a file that is read, `-o:w` a file that is written,
`-d?` a value that must be attached, `-#` is a number. `--name`, `--name=`, `--name=r`, `--name=w`, `--name=?` alike;
`--name=2` takes two words and `--name=2r` reads the second. `!--name` is an option that exists and is not accepted: it keeps
abbreviations honest.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from msgspec import Struct

from wieldy.shell.policy.words import Word


class Option(Struct, frozen=True):
    """How many values an option takes and what they mean: `t` text, `r` read, `w` written."""

    name: str
    values: int = 0
    attached: bool = False
    meaning: str = "t"


class Table(Struct, frozen=True):
    """The accepted options of one program. `harmless`: none of its options, listed or not, writes or runs anything."""

    short: dict[str, Option]
    long: dict[str, Option]
    refused: frozenset[str]
    number: bool
    harmless: bool = False
    exact: bool = False
    stops_at_operand: bool = False


class Parsed:
    """The options found, what they read and write, and what is left; `ended` when a `--` stood before all operands."""

    __slots__ = ("ended", "found", "operands", "problem", "reads", "writes")

    def __init__(self) -> None:
        self.found: dict[str, list[Word | None]] = {}
        self.reads: list[Word] = []
        self.writes: list[Word] = []
        self.operands: list[Word] = []
        self.ended = False
        self.problem = ""

    def has(self, *names: str) -> bool:
        """Whether one of these options was given."""
        return any(name in self.found for name in names)


def names(text: str) -> frozenset[str]:
    """A set of words written as one line."""
    return frozenset(text.split())


@cache
def table(spec: str, *, harmless: bool = False, exact: bool = False, stops_at_operand: bool = False) -> Table:
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
        elif item[2:3] == ":" or item[2:] == "?":
            short[item[1]] = _option("-" + item[1], item[2], item[3:] or item[2:].replace(":", ""))
        else:
            short.update((flag, Option("-" + flag)) for flag in item[1:])
    return Table(short, long, frozenset(refused), number, harmless, exact, stops_at_operand)


def _option(name: str, takes: str, how: str) -> Option:
    if not takes:
        return Option(name)
    if how == "?":
        return Option(name, 1, attached=True)
    return Option(name, 2 if how.startswith("2") else 1, meaning=how.lstrip("2") or "t")


def read(args: tuple[Word, ...], accepted: Table) -> Parsed:
    """Sort the arguments into options and operands; `problem` names the first that is not accepted."""
    parsed = Parsed()
    rest = iter(args)
    for word in rest:
        if word.static and word.text == "--":
            parsed.ended = not parsed.operands
            parsed.operands.extend(rest)
        elif not word.may_be_option or word.text == "-":
            parsed.operands.append(word)
            if accepted.stops_at_operand:
                parsed.operands.extend(rest)
        elif not word.prefix:
            if not accepted.harmless:
                parsed.problem = f"`{word.source or 'its input'}` could become an option"
            parsed.operands.append(word)
        elif word.prefix.startswith("--"):
            _long(word, rest, accepted, parsed)
        else:
            _short(word, rest, accepted, parsed)
        if parsed.problem:
            break
    return parsed


def _long(word: Word, rest: Iterator[Word], accepted: Table, parsed: Parsed) -> None:
    name, equals, value = word.prefix[2:].partition("=")
    option = _named(name, accepted) if equals or word.static else None
    if option is None or (equals and not option.values):
        parsed.problem = f"the option `{word.source}` is not known to be harmless"
    elif equals:
        _keep(option, [_attached(word, len(word.prefix) - len(value))], parsed)
    else:
        _follow(option, rest, accepted, parsed)


def _named(name: str, accepted: Table) -> Option | None:
    if name in accepted.long:
        return accepted.long[name]
    if accepted.exact or name in accepted.refused:
        return None
    fitting = [key for key in (*accepted.long, *accepted.refused) if key.startswith(name)]
    return accepted.long.get(fitting[0]) if len(fitting) == 1 else None


def _short(word: Word, rest: Iterator[Word], accepted: Table, parsed: Parsed) -> None:
    if accepted.number and word.static and word.text[1:].isdecimal():
        parsed.found.setdefault("-#", []).append(word)
        return
    for index, flag in enumerate(word.prefix[1:], 1):
        option = accepted.short.get(flag)
        if option is None:
            parsed.problem = f"the option `-{flag}` in `{word.source}` is not known to be harmless"
            return
        last = index + 1 == len(word.prefix)
        if option.values and (not last or not word.static):
            _keep(option, [_attached(word, index + 1)], parsed)
            return
        if option.values:
            _follow(option, rest, accepted, parsed)
        else:
            parsed.found.setdefault(option.name, []).append(None)
    if not word.static:
        parsed.problem = f"`{word.source}` could become other options"


def _attached(word: Word, start: int) -> Word:
    return Word(word.source[start:], word.kind, word.text[start:], word.prefix[start:])


def _follow(option: Option, rest: Iterator[Word], accepted: Table, parsed: Parsed) -> None:
    wanted = 0 if option.attached else option.values
    values = [word for _, word in zip(range(wanted), rest, strict=False)]
    if len(values) < wanted:
        parsed.problem = f"the option `{option.name}` lacks its value"
    elif any(value.kind == "glob" for value in values) and not accepted.harmless:
        parsed.problem = f"the value of `{option.name}` could become several"
    else:
        _keep(option, values, parsed)


def _keep(option: Option, values: list[Word], parsed: Parsed) -> None:
    if any(value.kind == "multiple" for value in values):
        parsed.problem = f"the value of `{option.name}` cannot be told"
        return
    parsed.found.setdefault(option.name, []).append(values[-1] if values else None)
    if values and option.meaning == "r":
        parsed.reads.append(values[-1])
    elif values and option.meaning == "w":
        parsed.writes.append(values[-1])
