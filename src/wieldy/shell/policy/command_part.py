"""The parts of a command line: each simple command with what it touches and the texts that rules are compared with."""

from __future__ import annotations

import re

from msgspec import Struct

from wieldy.core.effects import Effects
from wieldy.shell.policy.words import Word

_PLAIN_TEXT = re.compile(r"[A-Za-z0-9_@%+=:,./~^-]+")


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


def text_of(words: tuple[Word, ...]) -> str:
    """The command as a rule sees it: quotes removed where they change nothing, kept as written elsewhere."""
    spelled = [word.source if word.source == word.text else _spelled(word) for word in words if word.source]
    if words and words[0].source and words[0].static and _PLAIN_TEXT.fullmatch(words[0].text):
        spelled[0] = words[0].text
    return " ".join(spelled)


def _spelled(word: Word) -> str:
    quoted = any(char in word.source for char in "\"'\\") and ("$" not in word.source or word.source.startswith("$'"))
    return word.text if word.static and quoted and _PLAIN_TEXT.fullmatch(word.text) else word.source


def unquoted_text(words: tuple[Word, ...]) -> str:
    """The command with every quote resolved, and the program without its folder."""
    texts = [word.text if word.static else word.source for word in words if word.source]
    if texts:
        texts[0] = texts[0].rsplit("/", 1)[-1] or texts[0]
    return " ".join(texts)


_PLAIN_CONTROLS = frozenset("\t\n")
_INVISIBLE = frozenset({"Cf", "Cc", "Zl", "Zp", "Cs", "Co"})


def oddities(text: str) -> list[str]:
    """What a person should be told about the characters of a command: invisible ones and foreign spaces."""
    if text.isascii() and text.isprintable():
        return []
    import unicodedata

    found: dict[str, None] = {}
    for char in text:
        category = unicodedata.category(char)
        if char in _PLAIN_CONTROLS:
            continue
        if category in _INVISIBLE or (category == "Zs" and char != " "):
            found[_name(char)] = None
    return [f"the command contains {name}" for name in found]


def foreign_letters(program: str) -> list[str]:
    """The characters of a program's name that are not ASCII, by name: a Cyrillic letter can look like a Latin one."""
    return [] if program.isascii() else [_name(char) for char in dict.fromkeys(program) if not char.isascii()]


def _name(char: str) -> str:
    import unicodedata

    names = {"\0": "a NUL byte", "\r": "a carriage return", "\x1b": "an escape character"}
    return names.get(char) or f"U+{ord(char):04X} ({unicodedata.name(char, 'unnamed').lower()})"
