from __future__ import annotations

import json

import pytest

from wieldy.files.editing.document import Document
from wieldy.files.notebooks import parse_notebook


def escapes(source: str) -> bool:
    """Whether a notebook whose only cell holds this JSON string is taken for one whose writer escapes."""
    text = f'{{"cells": [{{"cell_type": "raw", "source": {source}}}], "nbformat": 4}}'
    json.loads(text)
    return parse_notebook(Document.of(text.encode())).style.ascii_only


@pytest.mark.parametrize(
    ("source", "escaped"),
    [
        ('"plain"', False),
        (r'"\u00e9"', True),
        (r'"\u001b[0m"', False),
        (r'"\\u00e9"', False),
        (r'"\\\u00e9"', True),
        (r'"\\\\u00e9"', False),
        (r'"\\u"', False),
        (r'"\u00e9 é"', False),
        (r'"\u001b \u2028"', True),
    ],
)
def test_a_writer_that_escapes_is_known_by_its_escapes(source: str, escaped: bool) -> None:
    assert escapes(source) == escaped
