"""What models are shown of the tools' inputs is written down as it follows from the declarations."""

from __future__ import annotations

from pathlib import Path

from wieldy.tools import MODULES, SCHEMAS, builtin_loaders
from wieldy.tools.__main__ import written


def test_the_written_schemas_are_those_of_the_declarations():
    assert Path(SCHEMAS).read_text(encoding="utf-8") == written(), "run `python -m wieldy.tools`"


def test_every_tool_is_shown_as_it_is_written():
    for name, load in builtin_loaders().items():
        tool = load()
        assert tool.name == name
        assert tool.schema == tool.written_schema == tool.parameters.schema
    assert len(MODULES) > 30
