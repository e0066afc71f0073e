"""Characters that look like nothing or like something else."""

from __future__ import annotations

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
