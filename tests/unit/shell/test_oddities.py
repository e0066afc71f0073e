from __future__ import annotations

import pytest
from tests.unit.shell.rules import look

from wieldy.shell.policy.command_part import foreign_letters, oddities


@pytest.mark.parametrize("text", ["ls -la", "echo 'größe'", "echo 日本語", "a\tb\nc", "echo 🎉"])
def test_ordinary_text_is_not_odd(text: str) -> None:
    assert oddities(text) == []


@pytest.mark.parametrize(
    ("char", "name"),
    [
        ("\0", "a NUL byte"),
        ("\r", "a carriage return"),
        ("\x1b", "an escape character"),
        ("\u200b", "U+200B (zero width space)"),
        ("\u202e", "U+202E (right-to-left override)"),
        ("\u00a0", "U+00A0 (no-break space)"),
        ("\u3000", "U+3000 (ideographic space)"),
        ("\ufeff", "U+FEFF (zero width no-break space)"),
    ],
)
def test_what_cannot_be_seen_is_named_and_makes_a_command_unknown(char: str, name: str) -> None:
    assert oddities(f"ls {char}x") == [f"the command contains {name}"]
    assert look(f"ls {char}x").verdict == "unknown"


def test_letters_that_look_alike_are_named() -> None:
    assert foreign_letters("g\u0456t") == ["U+0456 (cyrillic small letter byelorussian-ukrainian i)"]
    assert foreign_letters("git") == []
    assert look("g\u0456t status").problems
