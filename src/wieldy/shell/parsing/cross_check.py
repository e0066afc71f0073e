"""Confirm a parse with a second parser: tree-sitter must find the same commands, assignments and redirections."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from itertools import accumulate
from typing import TYPE_CHECKING, TypeAlias

from wieldy.shell.parsing import syntax

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

Span: TypeAlias = tuple[int, int]
Entry: TypeAlias = tuple[str, tuple[Span, ...]]


def parsers_agree(text: str, script: syntax.ShellScript) -> bool:
    """Whether tree-sitter reads `text` as our parser did."""
    return tree_sitter_outline(text) == outline(text, script)


def outline(text: str, script: syntax.ShellScript) -> list[Entry]:
    """Every call with its words, every assignment and redirection of our parse, as sorted byte positions."""
    entries = [entry for command in syntax.every_command(script) for entry in _entries(command)]
    if not text.isascii():
        offsets = [0, *accumulate(len(char.encode("utf-8", "surrogatepass")) for char in text)]
        last = len(text)
        entries = [
            (kind, tuple((offsets[min(a, last)], offsets[min(b, last)]) for a, b in spans)) for kind, spans in entries
        ]
    return sorted(entries)


def _entries(command: syntax.Command) -> Iterator[Entry]:
    if isinstance(command, syntax.FunctionDefinition | syntax.Coprocess):
        return
    if isinstance(command, syntax.SimpleCommand):
        if command.words:
            yield "call", tuple((word.start, word.end) for word in command.words)
        for assignment in command.assignments:
            yield "assign", ((assignment.start, assignment.end),)
    for redirect in command.redirects:
        start, end = redirect.target.start, redirect.target.end
        # Parsers differ in whether a here-document's end mark is part of it; where it starts is enough.
        yield redirect.operator, ((start, start if redirect.operator in ("<<", "<<-") else end),)


def _node_types(text: str) -> frozenset[str]:
    return frozenset(text.split())


_STRUCTURE = _node_types(
    "program list pipeline negated_command subshell compound_statement do_group for_statement "
    "while_statement if_statement elif_clause else_clause case_statement case_item function_definition "
    "variable_assignments command_substitution process_substitution string concatenation heredoc_body "
    "test_command binary_expression unary_expression parenthesized_expression postfix_expression ternary_expression "
    "arithmetic_expansion expansion subscript array"
)
_LEAVES = _node_types(
    "word number raw_string ansi_c_string simple_expansion brace_expression variable_name string_content "
    "comment special_variable_name test_operator regex extglob_pattern heredoc_start heredoc_end heredoc_content "
    "file_descriptor"
)
_WORDS = _node_types(
    "command_name word number string raw_string concatenation ansi_c_string simple_expansion expansion "
    "brace_expression command_substitution process_substitution arithmetic_expansion"
)
_EXPRESSIONS = frozenset(("binary_expression", "unary_expression", "parenthesized_expression"))


class _UnsupportedNode(ValueError):
    """The tree holds a node whose commands we cannot enumerate."""


def tree_sitter_outline(text: str) -> list[Entry] | None:
    """The outline of tree-sitter's parse; None where it finds an error or a form we cannot compare."""
    root = _parser().parse(text.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        return None
    collector = _TreeCollector(root)
    try:
        collector.run()
    except _UnsupportedNode:
        return None
    return sorted(collector.entries)


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


class _TreeCollector:
    """Walks tree-sitter's tree with a stack: a chain of a thousand commands is a tree a thousand nodes deep."""

    def __init__(self, root: Node) -> None:
        self.entries: list[Entry] = []
        self._stack = [root]
        self._late_words: dict[int, list[Span]] = {}

    def run(self) -> None:
        while self._stack:
            node = self._stack.pop()
            kind = node.type
            if kind == "command":
                self._command(node)
            elif kind == "test_command" and node.children[0].type == "[":
                self._bracket(node)
            elif kind in _STRUCTURE:
                self._stack.extend(node.named_children)
            elif kind in _LEAVES:
                continue
            elif kind == "redirected_statement":
                self._redirected_statement(node)
            elif kind == "variable_assignment":
                self._assignment(node)
            elif kind in ("file_redirect", "herestring_redirect"):
                self._redirect(node)
            elif kind == "heredoc_redirect":
                self._heredoc(node)
            elif kind in ("declaration_command", "unset_command"):
                self._declaration(node)
            else:
                raise _UnsupportedNode(kind)

    def _command(self, node: Node) -> None:
        words: list[Node] = []
        for child in node.children:
            if child.type in _WORDS:
                words.append(child)
                self._stack.extend(child.named_children)
            elif child.type == "variable_assignment":
                self._assignment(child)
            elif child.type in ("file_redirect", "herestring_redirect"):
                self._redirect(child)
            else:
                raise _UnsupportedNode(child.type)
        if node.prev_sibling is None or node.prev_sibling.type not in ("|", "|&"):
            words = _without_time(words)
        spans: list[Span] = []
        for word in words:
            # tree-sitter splits some words, such as `'a'b:$x/c`, although no blank stands between.
            if spans and spans[-1][1] == word.start_byte:
                spans[-1] = (spans[-1][0], word.end_byte)
            else:
                spans.append((word.start_byte, word.end_byte))
        self.entries.append(("call", (*spans, *self._late_words.get(node.id, ()))))

    def _redirected_statement(self, node: Node) -> None:
        """In `cmd >file word` tree-sitter takes `word` for a second file; it is an argument of the command."""
        self._stack.extend(node.named_children)
        late = [
            (target.start_byte, target.end_byte)
            for redirect in node.named_children
            if redirect.type == "file_redirect"
            for target in redirect.children_by_field_name("destination")[1:]
        ]
        command = node.named_children[0]
        while late and command.type in ("pipeline", "list", "negated_command", "redirected_statement"):
            command = command.named_children[-1]
        if late and command.type != "command":
            raise _UnsupportedNode(command.type)
        self._late_words[command.id] = late

    def _assignment(self, node: Node) -> None:
        self._stack.extend(node.named_children)
        self.entries.append(("assign", ((node.start_byte, node.end_byte),)))

    def _declaration(self, node: Node) -> None:
        """`export` and the like: what looks like an assignment is an argument."""
        for child in node.named_children:
            self._stack.extend(child.named_children if child.type == "variable_assignment" else (child,))
        self.entries.append(("call", tuple((child.start_byte, child.end_byte) for child in node.children)))

    def _redirect(self, node: Node) -> None:
        operator, targets = "", []
        for child in node.children:
            if not child.is_named:
                operator = child.type
            elif child.type != "file_descriptor":
                targets.append((child.start_byte, child.end_byte))
                self._stack.append(child)
        if operator in (">&-", "<&-"):
            operator, targets = operator[:2], [(node.end_byte - 1, node.end_byte)]
        if not targets:
            raise _UnsupportedNode("redirection")
        self.entries.append((operator, (targets[0],)))

    def _heredoc(self, node: Node) -> None:
        """A here-document; tree-sitter puts what follows its operator on the same line below it."""
        self._stack.extend(node.named_children)
        bodies = [child.start_byte for child in node.children if child.type == "heredoc_body"]
        if len(bodies) != 1:
            raise _UnsupportedNode("here-document")
        self.entries.append((node.children[0].type, ((bodies[0], bodies[0]),)))

    def _bracket(self, node: Node) -> None:
        """`[ … ]` is a call like any other: the words of its expression are its arguments."""
        words: list[Span] = []
        pending = node.children[::-1]
        while pending:
            child = pending.pop()
            if child.type in _EXPRESSIONS:
                pending.extend(child.children[::-1])
            else:
                words.append((child.start_byte, child.end_byte))
                self._stack.extend(child.named_children)
        self.entries.append(("call", tuple(words)))


def _without_time(words: list[Node]) -> list[Node]:
    """Drop the reserved word `time` with its options, which tree-sitter takes for a command."""
    if words and words[0].text == b"time":
        words = words[1:]
        for option in (b"-p", b"--"):
            if words and words[0].text == option:
                words = words[1:]
    return words
