"""Finished blocks as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wieldy.faces.terminal.plain import BlockPrinter
from wieldy.faces.terminal.text import Row, row_text
from wieldy.faces.terminal.view_model import LineBlock, SpansBlock, ViewModel, rows


class FailingRows(tuple[Row, ...]):
    def __iter__(self) -> Iterator[Row]:
        raise ValueError("broken rows")


def test_a_block_that_cannot_be_laid_out_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = ViewModel(lambda name: None, tmp_path)
    view.blocks += [LineBlock("before"), SpansBlock(FailingRows()), LineBlock("after")]
    BlockPrinter(view).print_new()
    assert capsys.readouterr().out == "before\nthis could not be shown: ValueError: broken rows\nafter\n"


@pytest.mark.parametrize(
    ("width", "text"),
    [
        (40, "  Read         Shows a file: text with\n               line numbers, images,\n               PDF pages"),
        (24, "  Read         Shows a\n  file: text with line\n  numbers, images, PDF\n  pages"),
    ],
)
def test_a_line_of_two_columns_is_wrapped_below_the_second_where_there_is_room(width: int, text: str) -> None:
    block = LineBlock("  Read         Shows a file: text with line numbers, images, PDF pages")
    assert "\n".join(row_text(row) for row in rows(block, width)) == text


def test_a_sentence_is_wrapped_below_its_indent() -> None:
    block = LineBlock("  one two three four five six seven")
    assert [row_text(row) for row in rows(block, 20)] == ["  one two three", "  four five six", "  seven"]
