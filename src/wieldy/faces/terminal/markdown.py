"""Markdown in a terminal: cut a streamed answer into finished blocks, and lay a block out as rows.

Code is flush left and never wrapped, so that it can be copied. markdown-it-py is loaded with the first answer.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache
from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from wieldy.faces.terminal.text import Row, TextSpan, clip_row, display_width, make_printable, row_width, wrap_spans

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_OPEN_CHARS = 8_000  # a block that grows beyond this is cut: it is parsed again with every line
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})([^\n`]*)$")
_ITEM = re.compile(r" {0,3}(?:[-*+]|\d{1,9}[.)])(?:\s|$)")
_TABLE_RULE = re.compile(r" {0,3}\|?[ :]*-[-| :]*\|[-| :]*$|^ {0,3}\|[ :]*-+[ :]*\|?$")

CODE_STYLE = "cyan"


class MarkdownPiece(Struct, frozen=True):
    """A piece of an answer; `gap` asks for a blank row before it."""

    source: str
    kind: Literal["block", "item", "code", "table"] = "block"
    gap: bool = True


class MarkdownStream:
    """Cuts a streamed text into pieces: a block is finished when the next one begins, code line by line."""

    def __init__(self) -> None:
        self._tail: list[str] = []  # complete lines of the open block
        self._line = ""  # the line that is being written
        self._tail_chars = 0
        self._fence: str | None = None
        self._in_table = False
        self._list_marker = ""  # of the item before the open block
        self._started = False
        self._code_started = False

    @property
    def tail(self) -> MarkdownPiece | None:
        """The open block as far as it has arrived."""
        if self._fence is not None:
            # A fence that is being closed is not code.
            line = "" if self._line.lstrip(" ").startswith(self._fence[:1]) else self._line
            return MarkdownPiece(line, "code", gap=not self._code_started and self._started) if line else None
        source = "".join(self._tail) + self._line
        if not source.strip():
            return None
        if self._in_table:
            return MarkdownPiece(source, "table", gap=self._started)
        return self._piece(source)

    def feed(self, text: str) -> list[MarkdownPiece]:
        """Add text; return the pieces that it finished."""
        if "\n" not in text:
            self._line += text
            return self._cut_long_line() if len(self._line) > MAX_OPEN_CHARS else []
        pieces: list[MarkdownPiece] = []
        first, *lines = (self._line + text).split("\n")
        self._line = lines.pop()
        for line in (first, *lines):
            pieces += self._add_line(line)
        return pieces

    def finish(self) -> list[MarkdownPiece]:
        """End the answer; return what was still open."""
        pieces = self._add_line(self._line) if self._line else []
        self._line = ""
        if self._fence is None:
            pieces += self._flush()
        self.__init__()  # type: ignore[misc]
        return pieces

    def _add_line(self, line: str) -> list[MarkdownPiece]:
        if self._fence is not None:
            return self._add_code_line(line)
        match = _FENCE.match(line)
        if match and not self._in_container(line):
            pieces = self._flush()
            self._fence, self._code_started = match[1], False
            return pieces
        if self._in_table:
            if line.strip() and "|" in line:
                self._append(line)
                return []
            return [*self._flush(), *self._add_line(line)]
        if not line.strip() and not self._tail:
            return []
        self._append(line)
        if _TABLE_RULE.match(line) and len(self._tail) > 1 and "|" in self._tail[-2]:
            *before, header, rule = self._tail
            self._replace_tail(before)
            pieces = self._flush()
            self._in_table = True
            self._replace_tail([header, rule])
            return pieces
        return self._cut_finished()

    def _in_container(self, line: str) -> bool:
        """Whether an indented fence belongs to a list item."""
        return bool(self._tail) and line.startswith(" ") and _ITEM.match(self._tail[0]) is not None

    def _add_code_line(self, line: str) -> list[MarkdownPiece]:
        assert self._fence is not None
        stripped = line.strip()
        if stripped.startswith(self._fence) and not stripped.strip(self._fence[0]):
            started, self._fence = self._code_started, None
            return [] if started else [self._code_piece("")]
        return [self._code_piece(line)]

    def _code_piece(self, line: str) -> MarkdownPiece:
        gap = not self._code_started and self._started
        self._code_started = self._started = True
        self._list_marker = ""
        return MarkdownPiece(line, "code", gap=gap)

    def _cut_finished(self) -> list[MarkdownPiece]:
        """Take all blocks off the tail but the last; of a list, all items but the last."""
        if len(self._tail) < 2:
            return []
        starts = list(block_starts("".join(self._tail)))
        pieces: list[MarkdownPiece] = []
        while len(starts) > 1:
            pieces.append(self._take("".join(self._tail[starts.pop(0) : starts[0]])))
        if pieces:
            self._replace_tail(self._tail[starts[0] :])
        elif self._tail_chars > MAX_OPEN_CHARS:
            return self._flush()
        return pieces

    def _flush(self) -> list[MarkdownPiece]:
        source = "".join(self._tail)
        pieces = [self._take(source)] if source.strip() else []
        self._replace_tail([])
        self._in_table = False
        return pieces

    def _take(self, source: str) -> MarkdownPiece:
        piece = self._piece(source.rstrip("\n"))
        self._started = True
        self._list_marker = _list_marker(source)
        return piece

    def _piece(self, source: str) -> MarkdownPiece:
        marker = _list_marker(source)
        gap = self._started and not (marker and marker == self._list_marker)
        return MarkdownPiece(source, "item" if marker else "block", gap=gap)

    def _append(self, line: str) -> None:
        self._tail.append(line + "\n")
        self._tail_chars += len(line) + 1

    def _replace_tail(self, lines: list[str]) -> None:
        self._tail = lines
        self._tail_chars = sum(map(len, lines))

    def _cut_long_line(self) -> list[MarkdownPiece]:
        """Finish the beginning of an endless line at a blank."""
        cut = self._line.rfind(" ", 0, MAX_OPEN_CHARS) + 1 or MAX_OPEN_CHARS
        if self._fence is not None:
            beginning, self._line = self._line[:cut], self._line[cut:]
            return [self._code_piece(beginning)]
        beginning, self._line = "".join(self._tail) + self._line[:cut], self._line[cut:]
        self._replace_tail([])
        return [self._take(beginning)]


def _list_marker(source: str) -> str:
    """The character that marks the items of a list; empty for any other block."""
    match = _ITEM.match(source)
    return match[0].strip()[-1] if match else ""


def block_starts(source: str) -> Iterator[int]:
    """Yield the first line of each block, and of each item of a list at the top."""
    level = 0
    for token in _block_parser().parse(source):
        if token.map is not None and token.nesting >= 0:
            is_list = token.type in ("bullet_list_open", "ordered_list_open")
            if level == 0 and not is_list or level == 1 and token.type == "list_item_open":  # noqa: RUF021
                yield token.map[0]
        level += token.nesting


@cache
def _block_parser() -> MarkdownIt:
    """A parser that finds blocks and leaves their text alone."""
    from markdown_it import MarkdownIt

    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])
    return parser


@cache
def _parser() -> MarkdownIt:
    from markdown_it import MarkdownIt

    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def markdown_rows(piece: MarkdownPiece, width: int) -> list[Row]:
    """Lay out a piece of an answer. Rows of code may be wider than the width."""
    gap: list[Row] = [()] if piece.gap else []
    if piece.kind == "code":
        return [*gap, (TextSpan(make_printable(piece.source), CODE_STYLE),)]
    return gap + render_markdown(piece.source, width)


def render_markdown(source: str, width: int) -> list[Row]:
    tokens = _parser().parse(make_printable(source))
    return _Layout(width).blocks(tokens, (), ())


class _Layout:
    """Lays out blocks below each other; containers put a prefix before the rows of their content."""

    def __init__(self, width: int) -> None:
        self._width = width

    def blocks(self, tokens: Sequence[Token], first: Row, rest: Row) -> list[Row]:
        """Lay out sibling blocks. `first` precedes the first row, `rest` all others."""
        rows: list[Row] = []
        previous = ""
        for group in _siblings(tokens):
            kind = group[0].type
            if rows and not (group[0].hidden or kind in _TIGHT or previous in ("html_block",)):
                rows.append(_trimmed(rest))
            rows += self._block(group, first if not rows else rest, rest)
            previous = kind
        return rows or [first]

    def _block(self, group: Sequence[Token], first: Row, rest: Row) -> list[Row]:
        token, content = group[0], group[1:-1]
        match token.type:
            case "paragraph_open":
                return wrap_spans(_inline(content), self._width, first=first, rest=rest)
            case "heading_open":
                spans = [TextSpan(span.text, f"bold {span.style}".strip()) for span in _inline(content)]
                return wrap_spans(spans, self._width, first=first, rest=rest)
            case "bullet_list_open" | "ordered_list_open":
                return self._list(token, content, first, rest)
            case "blockquote_open":
                bar = TextSpan("> ", "dim")
                return self.blocks(content, (*first, bar), (*rest, bar))
            case "fence" | "code_block":
                lines = token.content.rstrip("\n").split("\n")
                return [(*(rest if number else first), TextSpan(line, CODE_STYLE)) for number, line in enumerate(lines)]
            case "table_open":
                return _table(content, self._width, first, rest)
            case "hr":
                return [(*first, TextSpan("───", "dim"))]
        return wrap_spans([TextSpan(token.content.rstrip("\n"))], self._width, first=first, rest=rest)

    def _list(self, token: Token, content: Sequence[Token], first: Row, rest: Row) -> list[Row]:
        rows: list[Row] = []
        number = int(token.attrs.get("start", 1)) if token.type == "ordered_list_open" else None
        for item in _siblings(content):
            marker = "• " if number is None else f"{number}. "
            number = None if number is None else number + 1
            before = first if not rows else rest
            indent = TextSpan(" " * display_width(marker))
            rows += self.blocks(item[1:-1], (*before, TextSpan(marker, "dim")), (*rest, indent))
        return rows


_TIGHT = ("bullet_list_open", "ordered_list_open", "html_block")


def _trimmed(row: Sequence[TextSpan]) -> Row:
    """A row without blank spans at its end."""
    spans = list(row)
    while spans and not spans[-1].text.strip():
        spans.pop()
    return tuple(spans)


def _siblings(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Group tokens into blocks: an opening token, its content and its closing token, or a single one."""
    start = level = 0
    for position, token in enumerate(tokens):
        level += token.nesting
        if level == 0:
            yield tokens[start : position + 1]
            start = position + 1


def _inline(tokens: Sequence[Token]) -> list[TextSpan]:
    spans: list[TextSpan] = []
    for token in tokens:
        if token.type == "inline":
            spans += _inline_children(token.children or [])
    return spans


_INLINE_STYLES = {"strong": "bold", "em": "italic", "s": "strike", "link": "underline"}


def _inline_children(children: Sequence[Token]) -> list[TextSpan]:
    spans: list[TextSpan] = []
    styles: list[str] = []
    targets: list[tuple[str, int]] = []
    for token in children:
        name = token.type.removesuffix("_open").removesuffix("_close")
        style = " ".join(styles)
        if token.type.endswith("_open"):
            styles.append(_INLINE_STYLES.get(name, ""))
            if name == "link":
                targets.append((str(token.attrs.get("href", "")), len(spans)))
        elif token.type.endswith("_close"):
            if styles:
                styles.pop()
            if name == "link" and targets:
                target, start = targets.pop()
                label = "".join(span.text for span in spans[start:])
                if target and target not in (label, f"mailto:{label}"):
                    spans.append(TextSpan(f" ({target})", "dim"))
        elif token.type == "code_inline":
            spans.append(TextSpan(token.content, f"{style} {CODE_STYLE}".strip()))
        elif token.type in ("softbreak", "hardbreak"):
            spans.append(TextSpan("\n"))
        elif token.type == "image":
            spans.append(TextSpan(f"[image: {token.content}] ({token.attrs.get('src', '')})", "dim"))
        else:
            spans.append(TextSpan(token.content, style))
    return spans


def _table(content: Sequence[Token], width: int, first: Row, rest: Row) -> list[Row]:
    rows = _table_cells(content)
    if not rows:
        return [first]
    columns = max(len(row) for row in rows)
    for row in rows:
        row += [[] for _ in range(columns - len(row))]
    room = width - row_width(rest) - 2 * (columns - 1)
    widths = _column_widths(rows, room)
    if widths is None:
        return _table_as_records(rows, width, first, rest)
    alignment = _column_alignment(content, columns)
    laid_out: list[Row] = []
    for number, row in enumerate(rows):
        style = "bold" if number == 0 else ""
        cells = [wrap_spans(_styled(cell, style), max(size, 1)) for cell, size in zip(row, widths, strict=True)]
        for line in range(max(len(cell) for cell in cells)):
            spans: list[TextSpan] = list(first if not laid_out else rest)
            for index, (cell, size) in enumerate(zip(cells, widths, strict=True)):
                part = clip_row(cell[line], size) if line < len(cell) else ()
                blank = size - row_width(part)
                before = {"right": blank, "center": blank // 2}.get(alignment[index], 0)
                after = blank - before + (2 if index < columns - 1 else 0)
                spans += [TextSpan(" " * before), *part, TextSpan(" " * after)]
            laid_out.append(_trimmed(spans))
        if number == 0:
            rule = "  ".join("─" * size for size in widths)
            laid_out.append((*rest, TextSpan(rule, "dim")))
    return laid_out


def _styled(cell: Sequence[TextSpan], style: str) -> list[TextSpan]:
    return [TextSpan(span.text, f"{style} {span.style}".strip()) for span in cell]


def _table_cells(content: Sequence[Token]) -> list[list[list[TextSpan]]]:
    rows: list[list[list[TextSpan]]] = []
    for position, token in enumerate(content):
        if token.type == "tr_open":
            rows.append([])
        elif token.type in ("th_open", "td_open"):
            rows[-1].append(_inline(content[position + 1 : position + 2]))
    return rows


def _column_alignment(content: Sequence[Token], columns: int) -> list[str]:
    """`left`, `center` or `right` for each column, as the header says (`---:`)."""
    headers = [token for token in content if token.type == "th_open"]
    alignment = [str(token.attrs.get("style", "")).removeprefix("text-align:") for token in headers[:columns]]
    return alignment + ["left"] * (columns - len(alignment))


MIN_COLUMN = 8


def _column_widths(rows: Sequence[Sequence[Sequence[TextSpan]]], room: int) -> list[int] | None:
    """Give each column what it needs, or a fair share; None where the columns would be too narrow to read."""
    needed = [max(row_width(tuple(row[column])) for row in rows) for column in range(len(rows[0]))]
    widths = [max(size, 1) for size in needed]
    while sum(widths) > room:
        widest = max(range(len(widths)), key=widths.__getitem__)
        excess = sum(widths) - room
        others = max((size for index, size in enumerate(widths) if index != widest), default=0)
        target = max(widths[widest] - excess, min(others, widths[widest] - 1), MIN_COLUMN)
        if target >= widths[widest]:
            return None
        widths[widest] = target
    return widths


def _table_as_records(rows: Sequence[Sequence[Sequence[TextSpan]]], width: int, first: Row, rest: Row) -> list[Row]:
    """Lay out a table that is too wide as one paragraph per row: `header: value` below each other."""
    header, *body = rows
    laid_out: list[Row] = []
    for number, row in enumerate(body):
        if number:
            laid_out.append(_trimmed(rest))
        for name, cell in zip(header, row, strict=True):
            label = TextSpan(f"{''.join(span.text for span in name)}: ", "bold")
            laid_out += wrap_spans(
                [label, *cell], width, first=rest if laid_out else first, rest=(*rest, TextSpan("  "))
            )
    return laid_out or [first]
