"""What the first prompt needs is loaded in a thread, before it is used on the event loop."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
import wieldy.faces.terminal.app
before = set(sys.modules)
from wieldy.faces.terminal.app import preload
preload()
print(*sorted(set(sys.modules) - before))
"""


def test_markdown_tools_schemas_and_the_shell_grammar_are_loaded() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=120, check=True)
    loaded = set(done.stdout.split())
    assert {
        "markdown_it",
        "tree_sitter_bash",
        "jsonschema_rs",
        "wieldy.tools.edit",
        "wieldy.files.apply_edit",
    } <= loaded
