"""Resolve words as far as they are known before anything runs: quotes removed, `~`, `$HOME` and braces expanded."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType
from typing import Literal, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from wieldy.shell.parsing.syntax import (
    Expansion,
    LiteralText,
    Piece,
    RawWord,
    ShellScript,
    SimpleCommand,
    Substitution,
    Variable,
)

WordKind: TypeAlias = Literal["literal", "glob", "single", "multiple"]
FragmentKind: TypeAlias = Literal["unquoted", "quoted", "single", "multiple", "scoped", "revision"]
Fragment: TypeAlias = tuple[str, FragmentKind]

MAX_BRACE_FIELDS = 64
MAX_SHELL_FIELDS = 10_000
MAX_OPEN_BRACES = 16
MAX_CWDS = 4
PROCESS_SUBSTITUTION_PATH = "/dev/fd/63"

_RANGE = re.compile(r"(?:([+-]?\d+)\.\.([+-]?\d+)|([A-Za-z])\.\.([A-Za-z]))(?:\.\.([+-]?\d+))?")
_FRAGMENTS = re.compile(r"[^{},*?\[\]~/]+|.", re.DOTALL)
_EXPANDED_CHARACTERS = frozenset("*?[{~")
_SPLITTING_CHARACTERS = frozenset(" \t\n*?[\\")
_DEFAULT_OPERATORS = frozenset({":?", "?", ":-", "-"})
_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_@%+=:,./~^-]+")
_REVISION_COMMAND = re.compile(
    r"git (merge-base( [\w@][\w./~^@-]*){2}|rev-parse( --verify| --short)? [\w@][\w./~^@-]*)"
)
_EXPANSION = re.compile(r"\$\{[^{}]*\}|\$\([^()]*\)|\$\w+|\$[@*#?$!-]|`[^`]*`")
_NO_VARIABLES: Mapping[str, Word] = MappingProxyType({})


class Word(Struct, frozen=True):
    """One argument as far as it is known before the command runs.

    `kind`: the value is known ("literal"), a glob, or comes from an expansion and becomes one argument ("single") or any
    number ("multiple"). `text` is the value or the glob; `prefix` is the beginning that is certain. `scope`: folders at or
    below which an unknown value names something. `revision`: what is unknown of it is the id of a commit. `unsplit`: the
    value of a variable that stays one word without quotes. `glob`: the glob whose matches a loop goes through.
    """

    source: str
    kind: WordKind
    text: str
    prefix: str
    scope: tuple[str, ...] = ()
    revision: bool = False
    unsplit: bool = False
    glob: str = ""

    @property
    def shown(self) -> str:
        """The word for a message."""
        return f"`{self.source}`" if self.source else "its input"

    @property
    def pattern(self) -> str:
        """A glob for what the word may be, with a star for each expansion."""
        return _EXPANSION.sub("*", self.source.replace('"', "")) if self.dynamic else self.text

    @property
    def dynamic(self) -> bool:
        """Whether the value comes from an expansion."""
        return self.kind in ("single", "multiple")

    @property
    def may_be_option(self) -> bool:
        """Whether the program could take this word for an option."""
        if self.prefix or self.revision:
            return self.prefix.startswith("-") or (self.kind == "multiple" and not (self.scope or self.revision))
        return self.kind != "literal"

    def paths(self, state: ShellState) -> tuple[str, ...] | None:
        """The paths this word may name, or None if they are unknown. For a glob, the folder it searches."""
        if self.kind == "literal":
            return state.absolute_paths(self.text) or None
        if self.scope:
            return self.scope
        if self.kind == "glob" and ".." not in self.text[len(self.prefix) :].split("/"):
            folder = os.path.dirname(self.prefix) or ("/" if self.prefix.startswith("/") else ".")
            return state.absolute_paths(folder) or None
        return None


def literal(text: str) -> Word:
    """A word that is exactly this text."""
    return Word(text, "literal", text, text)


def command_text(words: tuple[Word, ...]) -> str:
    """The command as a rule sees it: quotes removed where they change nothing, kept as written elsewhere."""
    texts = [_word_text(word) for word in words if word.source]
    if words and words[0].source and words[0].kind == "literal" and _NEEDS_NO_QUOTES.fullmatch(words[0].text):
        texts[0] = words[0].text
    return " ".join(texts)


def _word_text(word: Word) -> str:
    if word.source == word.text:
        return word.source
    quoted = any(char in word.source for char in "\"'\\") and ("$" not in word.source or word.source.startswith("$'"))
    return word.text if word.kind == "literal" and quoted and _NEEDS_NO_QUOTES.fullmatch(word.text) else word.source


def unquoted_text(words: tuple[Word, ...]) -> str:
    """The command with every quote resolved, and the program without its folder."""
    texts = [word.text if word.kind == "literal" else word.source for word in words if word.source]
    if texts:
        texts[0] = texts[0].rsplit("/", 1)[-1] or texts[0]
    return " ".join(texts)


class ShellState(Struct, frozen=True):
    """What the analysis knows of the shell before a command; `cwds` are the possible working directories, empty if unknown."""

    home: str
    root: str
    cwds: tuple[str, ...]
    variables: Mapping[str, Word] = _NO_VARIABLES

    def absolute_paths(self, path: str) -> tuple[str, ...]:
        """The paths that `path` may mean: with `..` resolved as text, and as written where it could follow a symlink."""
        if path.startswith("/") and ".." not in path:
            return (_normalize(path),)
        if len(self.cwds) == 1 and ".." not in path and ".." not in self.cwds[0]:
            return (_normalize(f"{self.cwds[0]}/{path}"),)
        paths: list[str] = []
        for cwd in ("/",) if path.startswith("/") else self.cwds:
            joined = os.path.join(cwd, path)
            paths.append(_normalize(joined))
            if "/../" in joined + "/":
                paths.append(joined)
        return tuple(dict.fromkeys(paths))

    def after_cd(self, path: str) -> ShellState:
        """The state after `cd path` has succeeded."""
        cwds = tuple(place for place in self.absolute_paths(path) if "/../" not in place + "/")
        return replace(self, cwds=cwds[:MAX_CWDS])

    def with_unknown_cwd(self) -> ShellState:
        return replace(self, cwds=())

    def merge(self, other: ShellState) -> ShellState:
        """The state when either of two may hold."""
        if self is other:
            return self
        variables = {name: word for name, word in self.variables.items() if other.variables.get(name) == word}
        cwds = tuple(dict.fromkeys((*self.cwds, *other.cwds))) if self.cwds and other.cwds else ()
        return replace(self, cwds=cwds if len(cwds) <= MAX_CWDS else (), variables=variables)

    def with_variable(self, name: str, value: Word | None) -> ShellState:
        """The state in which a variable has a known value, or an unknown one."""
        variables = {key: word for key, word in self.variables.items() if key != name}
        if value is not None:
            variables[name] = value
        return replace(self, variables=variables)


def _normalize(path: str) -> str:
    normal = os.path.normpath(path)
    return normal[1:] if normal.startswith("//") else normal


def resolve_words(raws: tuple[RawWord, ...], state: ShellState) -> tuple[Word, ...]:
    """The arguments that several written words become."""
    return tuple([word for raw in raws for word in resolve_word(raw, state)])


def resolve_word(raw: RawWord, state: ShellState) -> tuple[Word, ...]:
    """The arguments one written word becomes; braces make several."""
    piece = raw.pieces[0] if len(raw.pieces) == 1 else None
    if isinstance(piece, LiteralText) and (piece.quoted or _EXPANDED_CHARACTERS.isdisjoint(piece.text)):
        return (Word(raw.source, "literal", piece.text, piece.text),)
    fragments = _fragments(raw.pieces, state)
    fields = _expand_braces(fragments) if "{" in raw.source else [fragments]
    if fields is None:
        return (Word(raw.source, "multiple", "", ""),)
    if len(fields) == 1:
        return (_with_glob(_join_fragments(fields[0], raw.source, state), raw.pieces, state),)
    return tuple(_join_fragments(one, "", state) for one in fields)


def _with_glob(word: Word, pieces: tuple[Piece, ...], state: ShellState) -> Word:
    """The word with the glob that it is if the variable of a loop over one stands in it."""
    if not word.dynamic or all(isinstance(piece, LiteralText) for piece in pieces):
        return word
    texts: list[str] = []
    for piece in pieces:
        value = state.variables.get(piece.name) if isinstance(piece, Variable) else None
        if not isinstance(piece, LiteralText) and (value is None or not value.glob):
            return word
        texts.append(piece.text if isinstance(piece, LiteralText) else value.glob if value else "")
    return replace(word, glob="".join(texts))


def resolve_without_braces(raw: RawWord, state: ShellState) -> Word:
    """A word where bash does not expand braces: the value of an assignment, a here-string."""
    return _join_fragments(_fragments(raw.pieces, state), raw.source, state)


_GLOB_SYNTAX = re.compile(r"[@!+*?]\([^()]*\)|\[(?:\[:\w+:\]|[!^]?\]?[^]/]*)+\]|\*+|\?|\\(.)", re.DOTALL)


@lru_cache(maxsize=512)
def glob_regex(pattern: str) -> re.Pattern[str]:
    """An expression for the names that a glob may match; what shells read differently may match anything."""
    pieces: list[str] = []
    end = 0
    for match in _GLOB_SYNTAX.finditer(pattern):
        pieces.append(re.escape(pattern[end : match.start()]))
        end = match.end()
        text = match.group()
        if match.group(1):
            pieces.append(re.escape(match.group(1)))
        elif text.startswith("["):
            pieces.append(_class_regex(text[1:-1]))
        else:
            pieces.append("." if text == "?" else ".*")
    return re.compile("".join((*pieces, re.escape(pattern[end:]))), re.DOTALL | re.IGNORECASE)


def _class_regex(inner: str) -> str:
    negated = inner[:1] in ("!", "^")
    members = re.sub(r"([\\\[\]^&~|])", r"\\\1", inner[negated:])
    try:
        re.compile(f"[{members}]")
    except re.error:
        return "."
    return "." if "[:" in inner or not members else f"[{'^' if negated else ''}{members}]"


def may_match(pattern: str, name: str) -> bool:
    """Whether a glob may expand to this name. A wildcard at its start stands for no dot, a class may, in some shells."""
    if name.startswith(".") and pattern[:1] in ("*", "?") and pattern[1:2] != "(":
        return False
    return glob_regex(pattern).fullmatch(name) is not None


def _fragments(pieces: tuple[Piece, ...], state: ShellState) -> list[Fragment]:
    fragments: list[Fragment] = []
    for piece in pieces:
        if isinstance(piece, LiteralText):
            if piece.quoted:
                fragments.append((piece.text, "quoted"))
            else:
                fragments.extend((text, "unquoted") for text in _FRAGMENTS.findall(piece.text))
        elif isinstance(piece, Substitution) and piece.process:
            fragments.append((PROCESS_SUBSTITUTION_PATH, "quoted"))
        elif (value := _variable_value(piece, state)) is not None:
            fragments.append(value)
        elif isinstance(piece, Substitution) and _prints_revision(piece.script):
            fragments.append(("", "revision"))
        else:
            single = piece.quoted and not (isinstance(piece, Variable | Expansion) and piece.name == "@")
            single = single and not (isinstance(piece, Expansion) and piece.operator == "[]")
            fragments.append(("", "single" if single else "multiple"))
    return fragments


def _prints_revision(script: ShellScript) -> bool:
    """Whether a script is `git merge-base A B` or `git rev-parse A`, which print the id of a commit."""
    stages = [stage for chain in script.and_or_lists for _, pipeline in chain.links for stage in pipeline.stages]
    command = stages[0] if len(stages) == 1 else None
    if not isinstance(command, SimpleCommand) or command.assignments or command.redirects:
        return False
    return _REVISION_COMMAND.fullmatch(" ".join(word.source for word in command.words)) is not None


def _variable_value(piece: Piece, state: ShellState) -> Fragment | None:
    if not (isinstance(piece, Variable) or (isinstance(piece, Expansion) and piece.operator in _DEFAULT_OPERATORS)):
        return None
    word = state.variables.get(piece.name)
    if word is not None and word.kind == "literal":
        text = word.text
    elif word is not None and word.revision and isinstance(piece, Variable):
        return ("", "revision")
    elif word is not None and word.scope and isinstance(piece, Variable) and (piece.quoted or word.unsplit):
        return ("\0".join((word.prefix, *word.scope)), "scoped")
    elif piece.name == "HOME":
        text = state.home
    elif piece.name == "PWD" and len(state.cwds) == 1:
        text = state.cwds[0]
    else:
        return None
    if text and (piece.quoted or _SPLITTING_CHARACTERS.isdisjoint(text)):
        return (text, "quoted")
    # An empty value takes the default of an expansion, and without quotes no word is left of it.
    return ("", "quoted") if piece.quoted and isinstance(piece, Variable) else None


def _join_fragments(fragments: list[Fragment], source: str, state: ShellState) -> Word:
    fragments = _expand_tilde(fragments, state)
    texts: list[str] = []
    kind: WordKind = "literal"
    prefix: str | None = None
    scope: tuple[str, ...] = ()
    last_bracket = max((index for index, one in enumerate(fragments) if one == ("]", "unquoted")), default=-1)
    for index, (value, how) in enumerate(fragments):
        if how in ("single", "multiple", "scoped", "revision"):
            prefix = "".join(texts) if prefix is None else prefix
            # A commit that does not exist leaves nothing of a word.
            several = how == "multiple" or (how == "revision" and len(fragments) == 1)
            kind = "multiple" if several or kind == "multiple" else "single"
            if how == "scoped" and sum(bool(text) for text, _ in fragments) == 1:
                prefix, *folders = value.split("\0")
                scope = tuple(folders)
        elif how == "unquoted" and (value in ("*", "?") or (value == "[" and index < last_bracket)):
            prefix = "".join(texts) if prefix is None else prefix
            kind = "glob" if kind == "literal" else kind
        texts.append(value if how != "scoped" else "")
    text = "".join(texts)
    dynamic = {how for _, how in fragments if how in ("single", "multiple", "scoped", "revision")}
    revision = dynamic == {"revision"} and ":" not in text
    return Word(source or text, kind, text, text if prefix is None else prefix, scope, revision)


def _expand_tilde(fragments: list[Fragment], state: ShellState) -> list[Fragment]:
    if not fragments or fragments[0] != ("~", "unquoted"):
        return fragments
    end = fragments.index(("/", "unquoted")) if ("/", "unquoted") in fragments else len(fragments)
    user, rest = fragments[1:end], fragments[end:]
    if not user:
        return [(state.home, "quoted"), *rest]
    if any(how != "unquoted" for _, how in user):
        return fragments
    if "".join(value for value, _ in user) == "+" and len(state.cwds) == 1:
        return [(state.cwds[0], "quoted"), *rest]
    return [("", "single"), *rest]


def _expand_braces(fragments: list[Fragment]) -> list[list[Fragment]] | None:
    """The fields that braces make of these fragments; None if there are too many."""
    opened = fragments.count(("{", "unquoted"))
    if not opened or ("}", "unquoted") not in fragments:
        return [fragments]
    if opened > MAX_OPEN_BRACES:
        return None
    for start, fragment in enumerate(fragments):
        if fragment == ("{", "unquoted") and (group := _brace_group(fragments, start)):
            return _combine(fragments[:start], *group)
    return [fragments]


def _combine(front: list[Fragment], choices: list[list[Fragment]], rest: list[Fragment]) -> list[list[Fragment]] | None:
    tails = _expand_braces(rest)
    if tails is None:
        return None
    fields: list[list[Fragment]] = []
    for choice in choices:
        middles = _expand_braces(choice)
        if middles is None:
            return None
        fields.extend(front + middle + tail for middle in middles for tail in tails)
        if len(fields) > MAX_BRACE_FIELDS:
            return None
    return fields


def expands_too_far(raw: RawWord, state: ShellState) -> bool:
    """Whether bash would make so many words of the braces in a word that they fill its memory."""
    return "{" in raw.source and _count_fields(_fragments(raw.pieces, state)) > MAX_SHELL_FIELDS


def _count_fields(fragments: list[Fragment]) -> int:
    if fragments.count(("{", "unquoted")) > MAX_OPEN_BRACES:
        return MAX_SHELL_FIELDS + 1
    for start, fragment in enumerate(fragments):
        if fragment == ("{", "unquoted") and (group := _brace_group(fragments, start)):
            choices, rest = group
            return sum(map(_count_fields, choices)) * _count_fields(rest)
    return 1


def _brace_group(fragments: list[Fragment], start: int) -> tuple[list[list[Fragment]], list[Fragment]] | None:
    """The alternatives of the brace group at `start` and what follows it; None if it is not closed or has none."""
    depth, commas = 0, []
    for index in range(start, len(fragments)):
        value, how = fragments[index]
        if how != "unquoted":
            continue
        if value == "{":
            depth += 1
        elif value == "," and depth == 1:
            commas.append(index)
        elif value == "}":
            depth -= 1
            if depth == 0:
                if commas:
                    choices = [fragments[a + 1 : b] for a, b in pairwise([start, *commas, index])]
                else:
                    choices = _brace_range(fragments[start + 1 : index])
                return (choices, fragments[index + 1 :]) if choices else None
    return None


def _brace_range(inner: list[Fragment]) -> list[list[Fragment]]:
    if any(how != "unquoted" for _, how in inner):
        return []
    match = _RANGE.fullmatch("".join(value for value, _ in inner))
    if match is None:
        return []
    if match.group(3):
        first, last = ord(match.group(3)), ord(match.group(4))
    else:
        first, last = int(match.group(1)), int(match.group(2))
    if max(abs(first), abs(last)) >= 2**63:
        return []
    step = abs(int(match.group(5) or 1)) or 1
    numbers = range(first, last + 1, step) if first <= last else range(first, last - 1, -step)
    numbers = numbers[: MAX_SHELL_FIELDS + 1]
    if match.group(3):
        return [[(chr(number), "quoted")] for number in numbers]
    ends = match.group(1, 2)
    width = max(map(len, ends)) if any(re.match(r"-?0\d", end) for end in ends) else 0
    return [[(str(number).zfill(width), "quoted")] for number in numbers]
