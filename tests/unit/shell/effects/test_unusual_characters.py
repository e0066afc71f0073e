from __future__ import annotations

import pytest
from tests.unit.shell.effects.rule_matching import analysis_of

from wieldy.shell.effects.analysis import non_ascii_characters, unusual_characters


@pytest.mark.parametrize("text", ["ls -la", "echo 'größe'", "echo 日本語", "a\tb\nc", "echo 🎉"])
def test_ordinary_text_is_not_odd(text: str) -> None:
    assert unusual_characters(text) == []


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
    assert unusual_characters(f"ls {char}x") == [f"the command contains {name}"]
    assert analysis_of(f"ls {char}x").verdict == "unknown"


def test_letters_that_look_alike_are_named() -> None:
    assert non_ascii_characters("g\u0456t") == ["U+0456 (cyrillic small letter byelorussian-ukrainian i)"]
    assert non_ascii_characters("git") == []
    assert analysis_of("g\u0456t status").problems
