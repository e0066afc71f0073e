"""Words as far as they can be known before anything runs: quotes removed, `~`, `$HOME` and braces expanded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

from wieldy.shell.parsing.syntax import Expansion, LiteralText, Piece, RawWord, Substitution, Variable

How: TypeAlias = Literal["unquoted", "quoted", "single", "multiple", "scoped"]
Atom: TypeAlias = tuple[str, How]
MAX_FIELDS = 64
MAX_OPENED = 16
_RANGE = re.compile(r"(-?\d{1,6})\.\.(-?\d{1,6})(?:\.\.(-?\d{1,6}))?|([A-Za-z])\.\.([A-Za-z])")


def expand_braces(atoms: list[Atom]) -> list[list[Atom]] | None:
    """The fields that these atoms become; None when there would be too many to look at."""
    opened = atoms.count(("{", "unquoted"))
    if not opened or ("}", "unquoted") not in atoms:
        return [atoms]
    if opened > MAX_OPENED:
        return None
    for start, atom in enumerate(atoms):
        if atom == ("{", "unquoted") and (found := _alternatives(atoms, start)):
            return _join(atoms[:start], *found)
    return [atoms]


def _join(front: list[Atom], choices: list[list[Atom]], behind: list[Atom]) -> list[list[Atom]] | None:
    tails = expand_braces(behind)
    if tails is None:
        return None
    fields: list[list[Atom]] = []
    for choice in choices:
        middles = expand_braces(choice)
        if middles is None:
            return None
        fields.extend(front + middle + tail for middle in middles for tail in tails)
        if len(fields) > MAX_FIELDS:
            return None
    return fields


def _alternatives(atoms: list[Atom], start: int) -> tuple[list[list[Atom]], list[Atom]] | None:
    depth, commas = 0, []
    for index in range(start, len(atoms)):
        value, how = atoms[index]
        if how != "unquoted":
            continue
        if value == "{":
            depth += 1
        elif value == "," and depth == 1:
            commas.append(index)
        elif value == "}":
            depth -= 1
            if depth == 0:
                inside = atoms[start + 1 : index]
                if commas:
                    edges = [start, *commas, index]
                    choices = [atoms[a + 1 : b] for a, b in pairwise(edges)]
                    return choices, atoms[index + 1 :]
                choices = _range(inside)
                return (choices, atoms[index + 1 :]) if choices else None
    return None


def _range(inside: list[Atom]) -> list[list[Atom]]:
    if any(how != "unquoted" for _, how in inside):
        return []
    found = _RANGE.fullmatch("".join(value for value, _ in inside))
    if found is None:
        return []
    if found.group(4):
        first, last, step = ord(found.group(4)), ord(found.group(5)), 1
    else:
        first, last, step = int(found.group(1)), int(found.group(2)), abs(int(found.group(3) or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    width = max(len(end) for end in found.group(1, 2) if end) if _padded(found) else 0
    if found.group(4):
        return [[(chr(number), "quoted")] for number in numbers[: MAX_FIELDS + 1]]
    return [[(str(number).zfill(width), "quoted")] for number in numbers[: MAX_FIELDS + 1]]


def _padded(found: re.Match[str]) -> bool:
    return any(end and re.match(r"-?0\d", end) for end in found.group(1, 2))


_GLOB = frozenset("*?")
_RUNS = re.compile(r"[^{},*?\[\]~/]+|.", re.DOTALL)
PIPE = "/dev/fd/63"
_ACTIVE = frozenset("*?[{~")
_SPLITS = frozenset(" \t\n*?[\\")
_DEFAULTING = frozenset({":?", "?", ":-", "-"})
Kind: TypeAlias = Literal["literal", "glob", "single", "multiple"]


class Word(Struct, frozen=True):
    """One argument. `text` is its value, or the pattern it is; `stem` is the part in front that is known for certain.

    `scope` is set where a dynamic word is known to name something at or below certain folders.
    """

    source: str
    kind: Kind
    text: str
    prefix: str
    scope: tuple[str, ...] = ()

    @property
    def static(self) -> bool:
        """Whether the value is known exactly."""
        return self.kind == "literal"

    @property
    def dynamic(self) -> bool:
        """Whether the value comes from somewhere that cannot be seen."""
        return self.kind in ("single", "multiple")

    @property
    def may_be_option(self) -> bool:
        """Whether the program could take this word for an option."""
        if self.prefix:
            return self.prefix.startswith("-") or (self.kind == "multiple" and not self.scope)
        return self.kind != "literal"

    def paths(self, scene: ShellState) -> tuple[str, ...] | None:
        """The places this word names, or None when nobody can tell."""
        if self.static:
            return scene.absolute(self.text) or None
        if self.scope:
            return self.scope
        if self.kind == "glob" and ".." not in self.text[len(self.prefix) :].split("/"):
            return scene.absolute(os.path.dirname(self.prefix) or ("/" if self.prefix.startswith("/") else ".")) or None
        return None


def plain(text: str) -> Word:
    """A word that is exactly this text."""
    return Word(text, "literal", text, text)


def within(source: str, folders: tuple[str, ...], prefix: str, kind: Kind = "single") -> Word:
    """A word that will name something at or below these folders, beginning with `stem`."""
    return Word(source, kind, "", prefix, folders)


def resolve_all(raws: tuple[RawWord, ...], scene: ShellState) -> tuple[Word, ...]:
    """The arguments that several written words become."""
    words: list[Word] = []
    for raw in raws:
        # Nearly every word is one literal, and there may be thousands: no call for those.
        piece = raw.pieces[0] if len(raw.pieces) == 1 else None
        if isinstance(piece, LiteralText) and (piece.quoted or _ACTIVE.isdisjoint(piece.text)):
            words.append(Word(raw.source, "literal", piece.text, piece.text))
        else:
            words.extend(resolve(raw, scene))
    return tuple(words)


def resolve(raw: RawWord, scene: ShellState) -> tuple[Word, ...]:
    """The arguments one written word becomes; braces make several."""
    if len(raw.pieces) == 1 and isinstance(piece := raw.pieces[0], LiteralText) and _is_bare(piece):
        return (Word(raw.source, "literal", piece.text, piece.text),)
    atoms = list(_atoms(raw.pieces, scene))
    fields = _expanded(atoms) if "{" in raw.source else [atoms]
    if fields is None:
        return (Word(raw.source, "multiple", "", ""),)
    if len(fields) == 1:
        return (_word(fields[0], raw.source, scene),)
    return tuple(_word(one, "", scene) for one in fields)


def resolve_one(raw: RawWord, scene: ShellState) -> Word:
    """A word where braces are not expanded: the value of an assignment, a here-string, the subject of a case."""
    return _word(list(_atoms(raw.pieces, scene)), raw.source, scene)


def _is_bare(piece: LiteralText) -> bool:
    return piece.quoted or _ACTIVE.isdisjoint(piece.text) or piece.text == "["


def _expanded(atoms: list[Atom]) -> list[list[Atom]] | None:

    return expand_braces(atoms)


def _atoms(pieces: tuple[Piece, ...], scene: ShellState) -> list[Atom]:
    atoms: list[Atom] = []
    for piece in pieces:
        if isinstance(piece, LiteralText):
            if piece.quoted:
                atoms.append((piece.text, "quoted"))
            else:
                atoms.extend([(run, "unquoted") for run in _RUNS.findall(piece.text)])
        elif isinstance(piece, Substitution) and piece.process:
            atoms.append((PIPE, "quoted"))
        elif (known := _known(piece, scene)) is not None:
            atoms.append(known)
        else:
            single = piece.quoted and not (isinstance(piece, Variable | Expansion) and piece.name == "@")
            single = single and not (isinstance(piece, Expansion) and piece.operator == "[]")
            atoms.append(("", "single" if single else "multiple"))
    return atoms


def _known(piece: Piece, scene: ShellState) -> Atom | None:
    if isinstance(piece, Variable) or (isinstance(piece, Expansion) and piece.operator in _DEFAULTING):
        word = scene.variables.get(piece.name)
        if word is not None and word.static:
            text = word.text
        elif word is not None and word.scope and isinstance(piece, Variable) and piece.quoted:
            return ("\0".join((word.prefix, *word.scope)), "scoped")
        elif piece.name == "HOME":
            text = scene.home
        elif piece.name == "PWD" and len(scene.cwds) == 1:
            text = scene.cwds[0]
        else:
            return None
        if piece.quoted or (text and not any(char in _SPLITS for char in text)):
            return (text, "quoted")
    return None


def _word(atoms: list[Atom], source: str, scene: ShellState) -> Word:
    atoms = _tilde(atoms, scene)
    text: list[str] = []
    kind: Kind = "literal"
    prefix: str | None = None
    scope: tuple[str, ...] = ()
    closed = next((index for index in range(len(atoms) - 1, -1, -1) if atoms[index] == ("]", "unquoted")), -1)
    for index, (value, how) in enumerate(atoms):
        if how in ("single", "multiple", "scoped"):
            prefix = "".join(text) if prefix is None else prefix
            kind = "multiple" if how == "multiple" or kind == "multiple" else "single"
            if how == "scoped" and sum(bool(one) for one, _ in atoms) == 1:
                prefix, *found = value.split("\0")
                scope = tuple(found)
        elif how == "unquoted" and (value in _GLOB or (value == "[" and index < closed)):
            prefix = "".join(text) if prefix is None else prefix
            kind = "glob" if kind == "literal" else kind
        text.append(value if how != "scoped" else "")
    whole = "".join(text)
    written = source or whole
    return Word(written, kind, whole, whole if prefix is None else prefix, scope)


def _tilde(atoms: list[Atom], scene: ShellState) -> list[Atom]:
    if not atoms or atoms[0] != ("~", "unquoted"):
        return atoms
    end = next((index for index, atom in enumerate(atoms) if atom == ("/", "unquoted")), len(atoms))
    prefix = atoms[1:end]
    if not prefix:
        return [(scene.home, "quoted"), *atoms[end:]]
    if any(how != "unquoted" for _, how in prefix):
        return atoms
    name = "".join(value for value, _ in prefix)
    if name == "+" and len(scene.cwds) == 1:
        return [(scene.cwds[0], "quoted"), *atoms[end:]]
    return [("", "single"), *atoms[end:]]


MAX_PLACES = 4
_NONE: Mapping[str, Word] = MappingProxyType({})


class ShellState(Struct, frozen=True):
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

    def moved(self, path: str) -> ShellState:
        """The scene after `cd path` has succeeded."""
        there = tuple(place for place in self.absolute(path) if "/../" not in place + "/")
        return replace(self, cwds=there[:MAX_PLACES])

    def lost(self) -> ShellState:
        """The scene after a `cd` to a place that cannot be told."""
        return replace(self, cwds=())

    def either(self, other: ShellState) -> ShellState:
        """The scene when it is not known which of two came to be."""
        if self.cwds == other.cwds:
            return self
        if not self.cwds or not other.cwds:
            return self.lost()
        both = tuple(dict.fromkeys((*self.cwds, *other.cwds)))
        return replace(self, cwds=both) if len(both) <= MAX_PLACES else self.lost()

    def knowing(self, name: str, value: Word | None) -> ShellState:
        """The scene in which a variable holds a known value, or an unknown one."""
        known = {key: word for key, word in self.variables.items() if key != name}
        if value is not None:
            known[name] = value
        return replace(self, variables=known)


def _normal(path: str) -> str:
    plain = os.path.normpath(path)
    return plain[1:] if plain.startswith("//") else plain
