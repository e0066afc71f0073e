"""Another parser's word before anything is called harmless: both must find the same commands in the same places."""

from __future__ import annotations

from wieldy.shell.read import bare_script
from wieldy.shell.syntax import Script

# shfmt's answer is many times as long as the text, and grows with the square of the nesting.
MAX_ASKED = 150


def confirmed(text: str, script: Script) -> bool:
    """Whether splitting (for what is plain), tree-sitter (for what it is known to read well) or shfmt reads it as we did."""
    if bare_script(text) == script:
        return True
    from wieldy.shell.outline import outline
    from wieldy.shell.plain import plain_outline

    ours = outline(script, text)
    if (plain := plain_outline(text)) is not None:
        return plain == ours.entries
    if ours.common:
        from wieldy.shell.grammar import common_outline

        if common_outline(text) == ours.entries:
            return True
    if len(ours.entries) + text.count("$") > MAX_ASKED:
        return False
    from wieldy.shell.shfmt import full_outline

    return full_outline(text) == ours.entries
