"""Finished blocks as rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from wieldy.terminal.blocks import LineBlock, SpansBlock
from wieldy.terminal.plain import BlockPrinter
from wieldy.terminal.text import Row
from wieldy.terminal.view_model import ViewModel


class FailingRows(tuple[Row, ...]):
    def __iter__(self) -> Iterator[Row]:
        raise ValueError("broken rows")


def test_a_block_that_cannot_be_laid_out_hides_no_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    view = ViewModel(lambda name: None, tmp_path)
    view.blocks += [LineBlock("before"), SpansBlock(FailingRows()), LineBlock("after")]
    BlockPrinter(view).print_new()
    assert capsys.readouterr().out == "before\nthis could not be shown: ValueError: broken rows\nafter\n"
