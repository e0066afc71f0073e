"""Editing one cell in place, beside reading the whole notebook as JSON and writing it again."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator

from bench.claim import Claim, best_of

from wieldy.files.editing.document import Document, apply_splices
from wieldy.files.notebooks import CellEdit

PICTURES = 100


def claims() -> Iterator[Claim]:
    for words, name in (("plain", "ASCII"), ("é", "with accents")):
        data = notebook(words)
        edit = CellEdit("replace", "50", "y = 2\n" + words)

        def in_place(data: bytes = data, edit: CellEdit = edit) -> bytes:
            return apply_splices(data, edit.plan(Document.of(data)).splices)

        def rewritten(data: bytes = data, words: str = words) -> bytes:
            book = json.loads(data)
            book["cells"][50]["source"] = ["y = 2\n", words]
            return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()

        assert in_place() == rewritten()
        ours, theirs = best_of(5, in_place, rewritten)
        detail = f"{len(data) / 1e6:.0f} MB: {ours * 1e3:.0f} ms beside {theirs * 1e3:.0f} ms"
        yield Claim(
            f"editing a cell of a large notebook {name}, beside rewriting all of it", ours / theirs, 1.0, detail=detail
        )


def notebook(words: str) -> bytes:
    picture = random.Random(1).randbytes(150_000).hex()
    cells = [
        {
            "cell_type": "code",
            "execution_count": n,
            "id": f"id{n:06}",
            "metadata": {},
            "outputs": [{"data": {"image/png": picture}, "metadata": {}, "output_type": "display_data"}],
            "source": [f"x = {n}\n", f"# {words}"],
        }
        for n in range(PICTURES)
    ]
    book = {"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
    return (json.dumps(book, indent=1, ensure_ascii=False) + "\n").encode()
