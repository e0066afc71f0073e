"""Another parser's word before anything is called harmless: both must find the same commands in the same places."""

from __future__ import annotations

from wieldy.shell.outline import is_plain, outline
from wieldy.shell.syntax import Script


def confirmed(text: str, script: Script) -> bool:
    """Whether tree-sitter (for plain lines) or shfmt reads the text exactly as we did."""
    ours = outline(script, text)
    if is_plain(script):
        from wieldy.shell.grammar import plain_outline

        if plain_outline(text) == ours:
            return True
    from wieldy.shell.shfmt import full_outline

    return full_outline(text) == ours
