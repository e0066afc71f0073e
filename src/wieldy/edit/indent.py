"""A uniform difference in indentation between what the model sent and what the file has."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from wieldy.core.record import record

WIDTHS = (4, 2, 8, 3)


def indent_of(line: str) -> str:
    """The tabs and spaces a line begins with."""
    return line[: len(line) - len(line.lstrip(" \t"))]


@record
class Shift:
    """Turns an indentation as sent into the file's: tabs and spaces converted, then a part added or taken away."""

    width: int = 0
    to_tabs: bool = False
    added: str = ""
    removed: str = ""

    def moved(self, line: str) -> str | None:
        """The line with the file's indentation; None where there is not enough indentation to take away."""
        indent = indent_of(line)
        rest = line[len(indent) :]
        if not rest:
            return line
        converted = self._converted(indent)
        if not converted.startswith(self.removed):
            return None
        return self.added + converted[len(self.removed) :] + rest

    def _converted(self, indent: str) -> str:
        if not self.width:
            return indent
        if not self.to_tabs:
            return indent.expandtabs(self.width)
        columns = len(indent.expandtabs(self.width))
        return "\t" * (columns // self.width) + " " * (columns % self.width)

    @property
    def words(self) -> str:
        """What was different, for the result."""
        if self.width:
            return f"{'tabs' if self.to_tabs else 'spaces'} instead of {'spaces' if self.to_tabs else 'tabs'}"
        return f"{_named(self.added)} more" if self.added else f"{_named(self.removed)} less"


def shift_between(sent: Sequence[str], found: Sequence[str]) -> Shift | None:
    """The one shift that turns every line's indentation as sent into the one found, if there is one."""
    pairs = [
        (indent_of(a), indent_of(b)) for a, b in zip(sent, found, strict=True) if a.strip(" \t") and b.strip(" \t")
    ]
    if not pairs:
        return None
    fitting = [shift for shift in _candidates(pairs) if shift is not None]
    return min(fitting, key=lambda shift: len(shift.added) + len(shift.removed), default=None)


def _candidates(pairs: list[tuple[str, str]]) -> Iterable[Shift | None]:
    yield _offset(pairs, Shift())
    sent, found = "".join(a for a, _ in pairs), "".join(b for _, b in pairs)
    if "\t" not in sent and "\t" in found and " " not in found:
        for width in WIDTHS:
            if all(len(a) % width == 0 for a, _ in pairs):
                yield _offset(pairs, Shift(width, to_tabs=True))
    if "\t" in sent and " " not in sent and "\t" not in found:
        for width in WIDTHS:
            yield _offset(pairs, Shift(width))


def _offset(pairs: list[tuple[str, str]], base: Shift) -> Shift | None:
    converted = [(base._converted(a), b) for a, b in pairs]
    first, other = converted[0]
    if other.endswith(first):
        added = other[: len(other) - len(first)]
        return Shift(base.width, base.to_tabs, added) if all(b == added + a for a, b in converted) else None
    if first.endswith(other):
        removed = first[: len(first) - len(other)]
        fits = all(a == removed + b for a, b in converted)
        return Shift(base.width, base.to_tabs, removed=removed) if fits else None
    return None


def _named(indent: str) -> str:
    kind = "tab" if set(indent) == {"\t"} else "space" if set(indent) == {" "} else "character"
    return f"{len(indent)} {kind}{'s' if len(indent) != 1 else ''}"
