"""Tree-sitter's reading of a plain command line."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING

from wieldy.shell.outline import Entry, Span

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

_STRUCTURE = frozenset(
    {
        "program",
        "list",
        "pipeline",
        "redirected_statement",
        ";",
        "\n",
        "&",
        "&&",
        "||",
        "|",
        "|&",
        "!",
        "negated_command",
        "comment",
    }
)
_TEXT = frozenset(
    {
        "word",
        "number",
        "string",
        "raw_string",
        "concatenation",
        "ansi_c_string",
        "simple_expansion",
        "expansion",
        "brace_expression",
    }
)


class NotPlain(ValueError):
    """The tree holds something beyond plain commands."""


def plain_outline(text: str) -> list[Entry] | None:
    """What tree-sitter says this plain command line would run; None where it sees more than that, or an error."""
    root = _parser().parse(text.encode("utf-8", "surrogatepass")).root_node
    if root.has_error:
        return None
    try:
        return sorted(_entries(root))
    except NotPlain:
        return None


@cache
def _parser() -> Parser:
    import tree_sitter_bash
    from tree_sitter import Language, Parser

    return Parser(Language(tree_sitter_bash.language()))


def _entries(root: Node) -> Iterator[Entry]:
    """Walk without recursion: a chain of a thousand commands is a tree a thousand deep."""
    waiting = [root]
    while waiting:
        node = waiting.pop()
        if node.type == "command":
            yield from _command(node)
        elif node.type == "file_redirect":
            yield _redirect(node)
        elif node.type in _STRUCTURE:
            waiting.extend(node.children)
        else:
            raise NotPlain(node.type)


def _command(node: Node) -> Iterator[Entry]:
    words: list[Span] = []
    for child in node.children:
        if child.type == "variable_assignment":
            yield "assign", ((child.start_byte, child.end_byte),)
        elif child.type == "file_redirect":
            yield _redirect(child)
        elif child.type == "command_name" or child.type in _TEXT:
            words.append((child.start_byte, child.end_byte))
        else:
            raise NotPlain(child.type)
    yield "call", tuple(words)


def _redirect(node: Node) -> Entry:
    operator, targets = "", []
    for child in node.children:
        if not child.is_named:
            operator = child.type
        elif child.type != "file_descriptor":
            targets.append((child.start_byte, child.end_byte))
    if len(targets) != 1:
        raise NotPlain("redirection")
    return operator, (targets[0],)
