"""The file types a search can be limited to, as `rg --type-list` names them (kept in `filetypes.txt`)."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from wieldy.search.globs import Matches, compile_any


@cache
def file_types() -> dict[str, tuple[str, ...]]:
    """Each type's name and the patterns of its file names."""
    text = Path(__file__).with_suffix(".txt").read_text(encoding="utf-8")
    return {name: tuple(globs.split(", ")) for name, globs in (line.split(": ", 1) for line in text.splitlines())}


def name_test(file_type: str) -> Matches | None:
    """A test of file names for a type; None when there is no such type."""
    return compile_any(file_types().get(file_type, ()))


def nearest_types(wanted: str) -> list[str]:
    """Types whose name or endings resemble what was asked for, best first."""
    from difflib import get_close_matches

    asked = wanted.lower().lstrip(".")
    by_ending = [name for name, globs in file_types().items() if f"*.{asked}" in globs]
    return list(dict.fromkeys((*by_ending, *get_close_matches(asked, file_types(), n=3, cutoff=0.5))))[:4]
