"""Tree-sitter's reading of a command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from wieldy.shell.outline import Entry, Span
from wieldy.shell.programs.options import names

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

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
