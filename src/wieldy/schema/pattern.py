"""Patterns that are compiled when they are first used: a start that uses few of a hundred does not wait for the others."""

from __future__ import annotations

import re
from typing import Any, AnyStr, cast

_METHODS = ("findall", "finditer", "fullmatch", "match", "search", "split", "sub", "subn")


class Pattern:
    """Stands for a compiled pattern, and becomes as quick as one with its first use."""

    def __init__(self, source: Any, flags: int) -> None:
        self._written = (source, flags)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        compiled = re.compile(*self._written)
        for method in _METHODS:
            setattr(self, method, getattr(compiled, method))
        return getattr(compiled, name)


def pattern(source: AnyStr, flags: int = 0) -> re.Pattern[AnyStr]:
    """A pattern for a module to keep, like `re.compile`; a mistake in it shows with its first use."""
    return cast("re.Pattern[AnyStr]", Pattern(source, flags))
