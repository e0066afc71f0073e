"""Tree-sitter's reading of a command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from wieldy.shell.parsing.syntax import (
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
from wieldy.shell.policy.programs.options import names

if TYPE_CHECKING:
    from tree_sitter import Node, Parser


Span: TypeAlias = tuple[int, int]
Entry: TypeAlias = tuple[str, tuple[Span, ...]]


class Outline(Struct, frozen=True):
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


_STRUCTURE = names(
    "program list pipeline redirected_statement negated_command subshell compound_statement do_group for_statement "
    "while_statement if_statement elif_clause else_clause case_statement case_item function_definition "
    "variable_assignments command_substitution process_substitution string concatenation heredoc_body "
    "test_command binary_expression unary_expression parenthesized_expression"
)
_LEAVES = names(
    "word number raw_string ansi_c_string simple_expansion expansion brace_expression variable_name string_content "
    "comment special_variable_name test_operator regex extglob_pattern heredoc_start heredoc_end heredoc_content file_descriptor"
)
_WORDS = names(
    "command_name word number string raw_string concatenation ansi_c_string simple_expansion expansion "
    "brace_expression command_substitution process_substitution"
)
_EXPRESSIONS = names("binary_expression unary_expression parenthesized_expression")
_NESTING = names("command_name string concatenation command_substitution process_substitution")


class NotCommon(ValueError):
    """The tree holds something that is left to another parser."""


def common_outline(text: str) -> list[Entry] | None:
    """What tree-sitter says this command line would run; None where it sees something uncommon, or an error."""
    root = _parser().parse(text.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        return None
    try:
        return sorted(_entries(root))
    except NotCommon:
        return None


@cache
def _parser() -> Parser:
    from tree_sitter import Language, Parser

    return Parser(Language(_bash()))


def _bash() -> object:
    """The grammar itself. Its package would first load, for texts that nobody asks for, what unpacks archives."""
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    package = PathFinder.find_spec("tree_sitter_bash")
    places = package.submodule_search_locations if package else None
    found = PathFinder.find_spec("tree_sitter_bash._binding", places) if places else None
    if found is None or found.loader is None:
        import tree_sitter_bash

        return tree_sitter_bash.language()
    binding = module_from_spec(found)
    found.loader.exec_module(binding)
    language: object = binding.language()
    return language


def _entries(root: Node) -> Iterator[Entry]:
    """Walk without recursion: a chain of a thousand commands is a tree a thousand deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        kind = node.type
        if kind == "command":
            yield from _command(node, waiting)
        elif kind == "test_command" and node.children[0].type == "[":
            yield _bracket(node, waiting)
        elif kind in _STRUCTURE:
            waiting.extend(node.named_children)
        elif kind in _LEAVES:
            continue
        elif kind == "variable_assignment":
            yield _assignment(node, waiting)
        elif kind in ("file_redirect", "herestring_redirect"):
            yield _redirect(node, waiting)
        elif kind == "heredoc_redirect":
            yield _heredoc(node, waiting)
        elif kind in ("declaration_command", "unset_command"):
            yield _declaration(node, waiting)
        else:
            raise NotCommon(kind)


def _command(node: Node, waiting: list[Node]) -> Iterator[Entry]:
    words: list[Span] = []
    for child in node.children:
        kind = child.type
        if kind in _WORDS:
            words.append((child.start_byte, child.end_byte))
            if kind in _NESTING:
                waiting.extend(child.named_children)
        elif kind == "variable_assignment":
            yield _assignment(child, waiting)
        elif kind in ("file_redirect", "herestring_redirect"):
            yield _redirect(child, waiting)
        else:
            raise NotCommon(kind)
    yield "call", tuple(words)


def _assignment(node: Node, waiting: list[Node]) -> Entry:
    waiting.extend(node.named_children)
    return "assign", ((node.start_byte, node.end_byte),)


def _declaration(node: Node, waiting: list[Node]) -> Entry:
    """`export` and its kin: what looks like an assignment is an argument."""
    for child in node.named_children:
        waiting.extend(child.named_children if child.type == "variable_assignment" else (child,))
    return "call", tuple((child.start_byte, child.end_byte) for child in node.children)


def _redirect(node: Node, waiting: list[Node]) -> Entry:
    operator, targets = "", []
    for child in node.children:
        if not child.is_named:
            operator = child.type
        elif child.type != "file_descriptor":
            targets.append((child.start_byte, child.end_byte))
            waiting.append(child)
    if len(targets) != 1:
        raise NotCommon("redirection")
    return operator, (targets[0],)


def _heredoc(node: Node, waiting: list[Node]) -> Entry:
    """A here-document; what follows its operator on the same line is found below it."""
    waiting.extend(node.named_children)
    bodies = [child.start_byte for child in node.children if child.type == "heredoc_body"]
    if len(bodies) != 1:
        raise NotCommon("here-document")
    return node.children[0].type, ((bodies[0], bodies[0]),)


def _bracket(node: Node, waiting: list[Node]) -> Entry:
    """`[ … ]` is a call like any other: the words of its expression are its arguments."""
    words: list[Span] = []
    inside = node.children[::-1]
    while inside:
        child = inside.pop()
        if child.type in _EXPRESSIONS:
            inside.extend(child.children[::-1])
        else:
            words.append((child.start_byte, child.end_byte))
            waiting.extend(child.named_children)
    return "call", tuple(words)
