"""Where a command stands: home, the folders it may be in, and the variables whose value is known."""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

from wieldy.core.record import changed, field, record

if TYPE_CHECKING:
    from wieldy.shell.words import Word

MAX_PLACES = 4
_NONE: Mapping[str, Word] = MappingProxyType({})


@record
class Scene:
    """`cwds` are the possible working directories; empty means that nobody can tell."""

    home: str
    root: str
    cwds: tuple[str, ...]
    variables: Mapping[str, Word] = field(default_factory=lambda: _NONE)
    functions: frozenset[str] = frozenset()

    def absolute(self, path: str) -> tuple[str, ...]:
        """The places a path may mean: with `..` taken as text, and as written where it could follow a link."""
        if path.startswith("/") and ".." not in path:
            return (_normal(path),)
        if len(self.cwds) == 1 and ".." not in path and ".." not in self.cwds[0]:
            return (_normal(f"{self.cwds[0]}/{path}"),)
        places: list[str] = []
        for cwd in ("/",) if path.startswith("/") else self.cwds:
            written = os.path.join(cwd, path)
            places.append(_normal(written))
            if "/../" in written + "/":
                places.append(written)
        return tuple(dict.fromkeys(places))

    def moved(self, path: str) -> Scene:
        """The scene after `cd path` has succeeded."""
        there = tuple(place for place in self.absolute(path) if "/../" not in place + "/")
        return changed(self, cwds=there[:MAX_PLACES])

    def lost(self) -> Scene:
        """The scene after a `cd` to a place that cannot be told."""
        return changed(self, cwds=())

    def either(self, other: Scene) -> Scene:
        """The scene when it is not known which of two came to be."""
        if self.cwds == other.cwds:
            return self
        if not self.cwds or not other.cwds:
            return self.lost()
        both = tuple(dict.fromkeys((*self.cwds, *other.cwds)))
        return changed(self, cwds=both) if len(both) <= MAX_PLACES else self.lost()

    def knowing(self, name: str, value: Word | None) -> Scene:
        """The scene in which a variable holds a known value, or an unknown one."""
        known = {key: word for key, word in self.variables.items() if key != name}
        if value is not None:
            known[name] = value
        return changed(self, variables=known)


def _normal(path: str) -> str:
    plain = os.path.normpath(path)
    return plain[1:] if plain.startswith("//") else plain
