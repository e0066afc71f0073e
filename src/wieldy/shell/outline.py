"""What a script would run, as positions in its text: the common ground on which two parsers can be compared."""

from __future__ import annotations

from itertools import accumulate
from typing import TypeAlias

from wieldy.core.record import record
from wieldy.shell.syntax import (
    Arithmetic,
    Branches,
    Command,
    Condition,
    Coprocess,
    Expansion,
    Function,
    Group,
    LiteralText,
    Loop,
    Piece,
    RawWord,
    Redirect,
    Script,
    Simple,
    Substitution,
)

Span: TypeAlias = tuple[int, int]
Entry: TypeAlias = tuple[str, tuple[Span, ...]]


@record
class Outline:
    """Every command with its words, every assignment and redirection, as byte positions in order.

    `common`: nothing in it that parsers are known to hide or to mistake.
    """

    entries: list[Entry]
    common: bool


def outline(script: Script, text: str) -> Outline:
    """The outline of a script as we read it."""
    drawn = _Drawing()
    drawn.script(script)
    entries = drawn.entries
    if not text.isascii():
        at = [0, *accumulate(len(char.encode("utf-8", "surrogatepass")) for char in text)]
        last = len(text)
        entries = [(kind, tuple((at[min(a, last)], at[min(b, last)]) for a, b in spans)) for kind, spans in entries]
    return Outline(sorted(entries), drawn.common)


class _Drawing:
    """An outline in the making."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.common = True

    def script(self, script: Script) -> None:
        for chain in script.chains:
            for _, pipeline in chain.links:
                self.common = self.common and not pipeline.timed
                for stage in pipeline.stages:
                    self._command(stage)

    def _command(self, command: Command) -> None:
        match command:
            case Simple():
                self._simple(command)
            case Group(body=body):
                self.script(body)
                self._redirects(command.redirects)
            case Branches(bodies=bodies, words=words):
                for one in bodies:
                    self.script(one)
                self._words(words)
                self._redirects(command.redirects)
            case Loop():
                self._loop(command)
            case Function(body=inner):
                self._command(inner)
            case Coprocess(body=inner):
                self.common = False
                self._command(inner)
            case Condition(words=words):
                self._words(words)
                self._redirects(command.redirects)

    def _loop(self, loop: Loop) -> None:
        if loop.condition:
            self.script(loop.condition)
        self.script(loop.body)
        self._words(loop.words or ())
        if loop.header:
            self._pieces((loop.header,))
        self._redirects(loop.redirects)

    def _simple(self, simple: Simple) -> None:
        if simple.words:
            self.entries.append(("call", tuple([(word.start, word.end) for word in simple.words])))
            self._words(simple.words)
        for one in simple.assignments:
            self.entries.append(("assign", ((one.start, one.end),)))
            if one.items or one.subscript:
                self.common = False
            self._words(tuple(word for word in (one.subscript, one.value, *one.items) if word))
        if simple.redirects:
            self._redirects(simple.redirects)

    def _redirects(self, redirects: tuple[Redirect, ...]) -> None:
        for redirect in redirects:
            start, end = redirect.target.start, redirect.target.end
            # Parsers differ in whether a here-document's end mark is part of it; where it starts is enough.
            body = redirect.operator in ("<<", "<<-")
            self.entries.append((redirect.operator, ((start, start if body else end),)))
            if body and any(isinstance(piece, Substitution) for piece in redirect.target.pieces):
                self.common = False
            self._words((redirect.target,))

    def _words(self, words: tuple[RawWord, ...]) -> None:
        for word in words:
            if len(word.pieces) != 1 or not isinstance(word.pieces[0], LiteralText):
                # A backtick is hidden by some parsers in here-documents and in expansions.
                self.common = self.common and "`" not in word.source
                self._pieces(word.pieces)

    def _pieces(self, pieces: tuple[Piece, ...]) -> None:
        for piece in pieces:
            if isinstance(piece, Substitution):
                self.script(piece.script)
            elif isinstance(piece, Expansion):
                self.common = self.common and all(isinstance(inner, LiteralText) for inner in piece.operand)
                self._pieces(piece.operand)
            elif isinstance(piece, Arithmetic):
                self.common = False
                self._pieces(piece.inner)
