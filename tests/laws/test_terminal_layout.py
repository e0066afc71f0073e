"""Laws of the terminal: rows keep their text and their width, and a screen shows exactly what was drawn."""

from __future__ import annotations

from collections.abc import Sequence

import pyte
from hypothesis import given, settings
from hypothesis import strategies as st

from wieldy.core.console import Fragment, render
from wieldy.core.text import escape_controls
from wieldy.faces.terminal.input import layout_draft
from wieldy.faces.terminal.markdown import MarkdownStream, markdown_rows
from wieldy.faces.terminal.screen import Caret, Screen
from wieldy.faces.terminal.text import (
    Row,
    TextSpan,
    clip_row,
    make_printable,
    row_text,
    row_width,
    wrap_spans,
)

COLUMNS, LINES = 24, 10
TEXT = st.text(st.one_of(st.characters(codec="utf-8"), st.sampled_from("ab  \n\t日本👨‍👩‍👧é🇩🇪\x1b[2J\r")), max_size=80)
STYLES = st.sampled_from(["", "bold", "dim red", "reverse"])


@given(st.lists(st.tuples(TEXT, STYLES), max_size=6), st.integers(8, 60))
def test_wrapping_keeps_every_character_and_the_width(pieces: list[tuple[str, str]], width: int) -> None:
    spans = [TextSpan(make_printable(text), style) for text, style in pieces]
    rows = wrap_spans(spans, width)
    kept = "".join("".join(row_text(row).split()) for row in rows)
    assert kept == "".join("".join(span.text.split()) for span in spans)
    if "http" not in kept:
        assert all(row_width(row) <= width for row in rows)


@given(TEXT, st.integers(1, 40))
def test_a_clipped_row_fits(text: str, width: int) -> None:
    row = (TextSpan(make_printable(text).replace("\n", " "), "bold"), TextSpan("end"))
    assert row_width(clip_row(row, width)) <= width


@given(TEXT)
def test_printable_text_passes_the_gate_unchanged(text: str) -> None:
    printable = make_printable(text)
    assert escape_controls(printable) == printable


@given(TEXT, st.integers(0, 80), st.integers(10, 40))
def test_the_caret_of_a_draft_stands_on_the_screen(text: str, cursor: int, width: int) -> None:
    rows, caret = layout_draft(text, min(cursor, len(text)), width, set())
    assert 0 <= caret.row < len(rows)
    assert caret.column <= width
    assert all(row_width(row) <= width for row in rows)


MARKDOWN = st.lists(
    st.sampled_from(
        [
            "# head",
            "text **bold** `code`",
            "- item",
            "  - nested",
            "1. one",
            "```",
            "code  x",
            "| a | b |",
            "|---|---|",
            "> q",
            "",
        ]
    ),
    max_size=25,
)


@given(MARKDOWN, st.integers(1, 12), st.integers(20, 80))
@settings(max_examples=60)
def test_streamed_markdown_does_not_depend_on_how_it_is_cut(lines: list[str], size: int, width: int) -> None:
    source = "\n".join(lines)

    def rows(pieces: Sequence[str]) -> list[str]:
        stream = MarkdownStream()
        finished = [piece for part in pieces for piece in stream.feed(part)] + stream.finish()
        return [row_text(row) for piece in finished for row in markdown_rows(piece, width)]

    assert rows([source[n : n + size] for n in range(0, len(source), size)]) == rows([source])


ASCII = st.text("abc xyz", max_size=COLUMNS - 1)
LONG = st.text("abcxyz", max_size=3 * COLUMNS)
FRAMES = st.lists(
    st.tuples(
        st.lists(st.one_of(ASCII, LONG), max_size=4),
        st.lists(ASCII, min_size=1, max_size=LINES - 1),
        st.integers(0, LINES),
        st.integers(0, COLUMNS - 1),
    ),
    min_size=1,
    max_size=8,
)


def as_row(text: str) -> Row:
    return (TextSpan(text),) if text else ()


@given(FRAMES)
@settings(max_examples=150)
def test_a_screen_shows_all_finished_rows_and_the_last_live_ones(
    frames: list[tuple[list[str], list[str], int, int]],
) -> None:
    emulator = pyte.HistoryScreen(COLUMNS, LINES, history=1000, ratio=0.001)
    stream = pyte.ByteStream(emulator)

    def write(fragments: Sequence[Fragment]) -> None:
        stream.feed(render(*fragments, color=True).encode())

    screen = Screen(write)
    expected: list[str] = []
    for finished, live, row, column in frames:
        caret = Caret(min(row, len(live) - 1), column)
        screen.draw([as_row(text) for text in finished], [as_row(text) for text in live], caret, COLUMNS)
        for text in finished:
            expected += [text[n : n + COLUMNS].rstrip() for n in range(0, max(len(text), 1), COLUMNS)]
    live = [text.rstrip() for text in frames[-1][1]]
    above = ["".join(line[n].data for n in range(COLUMNS)).rstrip() for line in emulator.history.top]
    shown = above + [line.rstrip() for line in emulator.display]
    while len(shown) > len(expected) + len(live) and not shown[-1]:
        shown.pop()
    assert shown == [*expected, *live]
    caret = Caret(min(frames[-1][2], len(live) - 1), frames[-1][3])
    assert (emulator.cursor.y + len(above), emulator.cursor.x) == (len(expected) + caret.row, caret.column)
