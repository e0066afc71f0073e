"""Notebooks whose values would take far more memory than the file are refused before they are parsed."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from wieldy.core.errors import ToolFailure
from wieldy.files.editing.document import Document
from wieldy.files.notebooks import MAX_CONTAINERS, MAX_VALUES, parse_notebook, read_notebook

FLOODS: dict[str, bytes] = {
    "empty lists": b'{"cells":[' + b"[]," * MAX_CONTAINERS + b"[]]}",
    "nested lists": b'{"cells":' + b"[" * MAX_CONTAINERS + b"[]" + b"]" * MAX_CONTAINERS + b"}",
    "objects": b'{"cells":[{"outputs":[' + b'{"a":[]},' * (MAX_CONTAINERS // 2) + b"{}]}]}",
    "strings": b'{"cells":[{"source":[' + b'"",' * (MAX_VALUES + 1) + b'""]}]}',
    "other encoding": ('{"cells":[' + "[]," * MAX_CONTAINERS + "[]]}").encode("utf-16"),
    "after a quote in a string": b'{"a":"\\"","cells":[' + b"[]," * MAX_CONTAINERS + b"[]]}",
}


def edit(data: bytes) -> object:
    return parse_notebook(Document.of(data))


def read(data: bytes) -> object:
    return read_notebook(data, "n.ipynb")


@pytest.mark.timeout(60)
@pytest.mark.parametrize("parse", [read, edit])
@pytest.mark.parametrize("kind", FLOODS)
def test_a_flood_of_values_is_refused_before_it_is_parsed(kind: str, parse: Callable[[bytes], object]) -> None:
    data = FLOODS[kind]
    with pytest.raises(ToolFailure, match=r"holds more than|kept in utf-16"):
        parse(data)


def test_text_and_pictures_with_many_marks_are_no_values() -> None:
    picture = {"data": {"image/svg+xml": "[{," * MAX_VALUES}, "metadata": {}, "output_type": "display_data"}
    cell = {"cell_type": "code", "id": "a", "source": ["x = [1, 2]\n"] * 10_000, "metadata": {}, "outputs": [picture]}
    notebook = {"cells": [cell], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    assert len(read_notebook(json.dumps(notebook).encode(), "n.ipynb").cells) == 1
