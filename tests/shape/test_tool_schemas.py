"""What models are shown of the tools' inputs is written down as it follows from the declarations."""

from __future__ import annotations

from pathlib import Path

from wieldy.core.tool import Tool
from wieldy.tools import MODULES, SCHEMAS, builtin_loaders
from wieldy.tools.__main__ import written


def test_the_written_schemas_are_those_of_the_declarations():
    assert Path(SCHEMAS).read_text(encoding="utf-8") == written(), "run `python -m wieldy.tools`"


def test_every_tool_is_shown_as_it_is_written():
    for name, load in builtin_loaders().items():
        tool = load()
        assert tool.name == name
        declared = tool.declared_parameters()
        assert tool.schema == tool.parameters.schema == declared.schema
        assert tool.parameters.aliases == declared.aliases
    assert len(MODULES) > 30


def test_what_is_shown_of_a_tool_before_it_is_loaded_is_what_it_shows():
    without = set()
    for name, load in builtin_loaders().items():
        shown, tool = load.shown, load()
        if shown is None:
            without.add(name)
            continue
        for fact in ("name", "description", "prompt", "schema", "read_only", "deferred"):
            assert getattr(shown, fact) == getattr(tool, fact), (name, fact)
        assert not hasattr(tool, "always_load")
        assert type(tool).describe is Tool.describe
    assert {"AskUser", "Skill", "WebSearch"} <= without, "those ask for something about the place"
    assert not without & {"Read", "Edit", "Write", "Glob", "Grep", "TodoWrite"}
