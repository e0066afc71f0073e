"""One line of a table: the options a program is accepted with, and what its operands mean."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from msgspec import Struct

from wieldy.shell.policy.programs.options import Parsed, read, table
from wieldy.shell.policy.words import ShellState, Word, plain


class Call(Struct, frozen=True):
    """A program's name and arguments, and where it stands."""

    name: str
    args: tuple[Word, ...]
    scene: ShellState


class Judgement(Struct, frozen=True):
    """The effects of one call. Unless `known`, there may be others; `why` says what is not understood.

    `sweeps`: what it reads it reads whole, folders with all their files, except what is `spared`.
    """

    reads: tuple[Word, ...] = ()
    writes: tuple[Word, ...] = ()
    fetches: tuple[str, ...] = ()
    known: bool = True
    changes: bool = False
    sweeps: bool = False
    spared: tuple[Word, ...] = ()
    why: str = ""

    @property
    def read_only(self) -> bool:
        """Whether the call is proven to change nothing."""
        return self.known and not self.changes and not self.writes and not self.fetches


Judge: TypeAlias = Callable[[Call], Judgement]
NOTHING = Judgement()


def unknown(why: str) -> Judgement:
    """The judgement of a call that is not understood."""
    return Judgement(known=False, why=why)


Operands: TypeAlias = Literal["files", "files or here", "text", "none", "pattern then files", "in then out", "written"]


class Row(Struct, frozen=True):
    """A program judged by its table alone. `pattern_options` are those that take the place of the first operand."""

    spec: str
    operands: Operands
    harmless: bool = False
    exact: bool = False
    pattern_options: tuple[str, ...] = ()
    recursive_options: tuple[str, ...] = ()
    sweeps: bool = False

    def __call__(self, call: Call) -> Judgement:
        """Judge one call of the program."""
        parsed = read(call.args, table(self.spec, harmless=self.harmless, exact=self.exact))
        if parsed.problem:
            return unknown(parsed.problem)
        return _OPERANDS[self.operands](self, parsed)


def _files(row: Row, parsed: Parsed) -> Judgement:
    return Judgement((*parsed.reads, *_named(parsed.operands)), tuple(parsed.writes), sweeps=row.sweeps)


def _files_or_here(row: Row, parsed: Parsed) -> Judgement:
    return Judgement((*parsed.reads, *(_named(parsed.operands) or (plain("."),))), tuple(parsed.writes))


def _text(row: Row, parsed: Parsed) -> Judgement:
    return Judgement(tuple(parsed.reads), tuple(parsed.writes))


def _none(row: Row, parsed: Parsed) -> Judgement:
    if parsed.operands:
        return unknown(f"the operand `{parsed.operands[0].source}` is not expected")
    return _text(row, parsed)


def _pattern_then_files(row: Row, parsed: Parsed) -> Judgement:
    files = parsed.operands
    if not parsed.has(*row.pattern_options):
        if files and files[0].kind in ("multiple", "glob"):
            return unknown(f"`{files[0].source}` could become several words")
        if files and files[0].may_be_option and not parsed.ended:
            return unknown(f"`{files[0].source}` could become an option")
        files = files[1:]
    reads = _named(files)
    sweeps = parsed.has(*row.recursive_options) or "." in row.recursive_options
    if not reads and sweeps:
        reads = (plain("."),)
    return Judgement((*parsed.reads, *reads), tuple(parsed.writes), sweeps=sweeps)


def _in_then_out(row: Row, parsed: Parsed) -> Judgement:
    if len(parsed.operands) > 2 or any(word.kind in ("multiple", "glob") for word in parsed.operands):
        return unknown("which file is read and which is written cannot be told")
    return Judgement((*parsed.reads, *_named(parsed.operands[:1])), (*parsed.writes, *_named(parsed.operands[1:])))


def _written(row: Row, parsed: Parsed) -> Judgement:
    return Judgement(tuple(parsed.reads), (*parsed.writes, *_named(parsed.operands)), changes=True)


def _named(words: list[Word]) -> tuple[Word, ...]:
    """The words that are files: a lone dash is the standard input or output."""
    return tuple(word for word in words if not (word.static and word.text in ("-", "")))


_OPERANDS = {
    "files": _files,
    "files or here": _files_or_here,
    "text": _text,
    "none": _none,
    "pattern then files": _pattern_then_files,
    "in then out": _in_then_out,
    "written": _written,
}
