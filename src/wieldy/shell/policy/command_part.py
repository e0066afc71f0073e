"""One simple command of a command line: its effects and the texts that permission rules are compared with."""

from __future__ import annotations

import re
import unicodedata

from msgspec import Struct

from wieldy.core.effects import Effects
from wieldy.shell.policy.words import Word

_NEEDS_NO_QUOTES = re.compile(r"[A-Za-z0-9_@%+=:,./~^-]+")
_INVISIBLE_CATEGORIES = frozenset({"Cf", "Cc", "Zl", "Zp", "Cs", "Co"})
_CHARACTER_NAMES = {"\0": "a NUL byte", "\r": "a carriage return", "\x1b": "an escape character"}


class CommandPart(Struct, frozen=True):
    """One simple command at any depth of a command line.

    A part without `argv` is an assignment or the redirection of a group: only its effects count.
    `allow_texts`: a rule that allows any of them allows the part. `deny_texts`: the command at every level of wrapping, for
    rules that deny or ask. `cwds`: the folders it may run in. `bulk_reads`: folders whose files it reads without naming them.
    `exact_rule`: a rule with a wildcard must not allow it. `redirect_effects`: the effects of its redirections;
    `program_read_only`: it would be read-only without them. `input_texts`: texts of here-documents and, if its effects are
    unknown, what earlier stages of its pipeline may print. `variable_values`: if its effects are unknown, the values
    assigned to variables that may influence programs.
    """

    text: str
    argv: tuple[Word, ...]
    program: str | None
    effects: Effects
    read_only: bool
    known: bool
    why: str = ""
    wrappers: tuple[str, ...] = ()
    assignments: tuple[str, ...] = ()
    span: tuple[int, int] = (0, 0)
    allow_texts: tuple[str, ...] = ()
    deny_texts: tuple[str, ...] = ()
    bulk_reads: tuple[str, ...] = ()
    cwds: tuple[str, ...] = ()
    exact_rule: bool = False
    redirect_effects: Effects = ()
    program_read_only: bool = False
    input_texts: tuple[str, ...] = ()
    variable_values: tuple[str, ...] = ()

    @property
    def rule_text(self) -> str:
        """The text a new rule would be made from: wrappers and harmless assignments stripped, quotes resolved."""
        return self.allow_texts[-1] if self.allow_texts else self.text


def command_text(words: tuple[Word, ...]) -> str:
    """The command as a rule sees it: quotes removed where they change nothing, kept as written elsewhere."""
    texts = [_word_text(word) for word in words if word.source]
    if words and words[0].source and words[0].static and _NEEDS_NO_QUOTES.fullmatch(words[0].text):
        texts[0] = words[0].text
    return " ".join(texts)


def _word_text(word: Word) -> str:
    if word.source == word.text:
        return word.source
    quoted = any(char in word.source for char in "\"'\\") and ("$" not in word.source or word.source.startswith("$'"))
    return word.text if word.static and quoted and _NEEDS_NO_QUOTES.fullmatch(word.text) else word.source


def unquoted_text(words: tuple[Word, ...]) -> str:
    """The command with every quote resolved, and the program without its folder."""
    texts = [word.text if word.static else word.source for word in words if word.source]
    if texts:
        texts[0] = texts[0].rsplit("/", 1)[-1] or texts[0]
    return " ".join(texts)


def unusual_characters(text: str) -> list[str]:
    """Name the invisible characters and foreign spaces in a command."""
    if text.isascii() and text.isprintable():
        return []
    odd = [char for char in dict.fromkeys(text) if char not in "\t\n " and _is_unusual(unicodedata.category(char))]
    return [f"the command contains {_character_name(char)}" for char in odd]


def _is_unusual(category: str) -> bool:
    return category in _INVISIBLE_CATEGORIES or category == "Zs"


def non_ascii_characters(program: str) -> list[str]:
    """Name the characters of a program's name that are not ASCII: a Cyrillic letter can look like a Latin one."""
    return [] if program.isascii() else [_character_name(char) for char in dict.fromkeys(program) if not char.isascii()]


def _character_name(char: str) -> str:
    return _CHARACTER_NAMES.get(char) or f"U+{ord(char):04X} ({unicodedata.name(char, 'unnamed').lower()})"
