"""What an author can say about a parameter beyond its type: `Annotated[int, Param("Lines after", name="-A", ge=0)]`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any


@dataclass(frozen=True, slots=True, eq=False)
class Param:
    """Description, wire name, further accepted spellings and bounds of a parameter.

    A plain string in `Annotated` is a description too. `name` is what the model writes where Python cannot
    spell it (`-A`); `aliases` are accepted beside it and never shown.
    """

    about: str = ""
    _: KW_ONLY
    name: str | None = None
    aliases: tuple[str, ...] = ()
    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    multiple_of: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    pattern: str | None = None
    examples: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        if self.pattern is not None:
            re.compile(self.pattern)  # a wrong one is the author's mistake: better said here than at the first call
