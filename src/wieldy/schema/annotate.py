"""What an author can say about a parameter beyond its type: `Annotated[int, Param("Lines after", name="-A", ge=0)]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


class Param:
    """Description, wire name, further accepted spellings and bounds of a parameter.

    A plain string in `Annotated` is a description too. `name` is what the model writes where Python cannot
    spell it (`-A`); `aliases` are accepted beside it and never shown.
    """

    __slots__ = (
        "about",
        "aliases",
        "examples",
        "ge",
        "gt",
        "le",
        "lt",
        "max_length",
        "min_length",
        "multiple_of",
        "name",
        "pattern",
    )

    def __init__(  # noqa: PLR0913 - each is a keyword of its own
        self,
        about: str = "",
        *,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        ge: float | None = None,
        gt: float | None = None,
        le: float | None = None,
        lt: float | None = None,
        multiple_of: float | None = None,
        min_length: int | None = None,
        max_length: int | None = None,
        pattern: str | None = None,
        examples: Sequence[Any] | None = None,
    ) -> None:
        if pattern is not None:
            import re

            re.compile(pattern)  # a wrong one is the author's mistake: better said here than at the first call
        self.about = about
        self.name = name
        self.aliases = aliases
        self.ge = ge
        self.gt = gt
        self.le = le
        self.lt = lt
        self.multiple_of = multiple_of
        self.min_length = min_length
        self.max_length = max_length
        self.pattern = pattern
        self.examples = examples

    def __repr__(self) -> str:
        said = {name: value for name in self.__slots__ if (value := getattr(self, name)) not in (None, "", ())}
        return f"Param({', '.join(f'{name}={value!r}' for name, value in said.items())})"

    def described(self, about: str) -> Param:
        """The same with this description."""
        return Param(**{**{name: getattr(self, name) for name in self.__slots__}, "about": about})
