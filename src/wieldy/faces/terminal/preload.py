"""Load what the first prompt will need while the person reads the start screen.

The program imports at first use. In a session that would be on the event loop, between a key and its echo.
"""

from __future__ import annotations

from importlib import import_module

# Behind the commands, and behind the tools that nearly every session uses.
_MODULES = (
    "wieldy.faces.terminal.commands",
    "wieldy.faces.terminal.diff_view",
    "wieldy.files.apply_edit",
    "wieldy.files.reading.read_file",
    "wieldy.files.search.grep",
    "wieldy.shell.running.session",
)


def preload() -> None:
    """Load Markdown, commands, tools, schemas and the analysis of shell commands. Meant for a thread."""
    from wieldy.core.schema.check import SchemaValidator
    from wieldy.faces.terminal.markdown import render_markdown
    from wieldy.shell.effects.analysis import classify
    from wieldy.tools import builtin_loaders

    render_markdown("text", 80)
    classify("true")
    SchemaValidator({}).problems({})
    for load in builtin_loaders().values():
        load()
    for name in _MODULES:
        import_module(name)
