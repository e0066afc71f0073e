"""A file that may not be read, through every tool: refused as denied, nothing told of what it holds or whether it is there."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.decision import Opinion

pytestmark = pytest.mark.asyncio

BOOK = {"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}
USES: list[tuple[str, dict[str, Any]]] = [
    ("Read", {}),
    ("Edit", {"old_string": "KEY", "new_string": "x"}),
    ("MultiEdit", {"edits": [{"old_string": "KEY", "new_string": "x"}]}),
    ("Write", {"content": "x"}),
]


@pytest_asyncio.fixture(params=["default", "acceptEdits", "bypassPermissions"])
async def box(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Toolbox]:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    work = tmp_path / "work"
    work.mkdir()
    (work / ".env").write_text("KEY=hunter2\n")
    (work / ".env.ipynb").write_text(json.dumps(BOOK))
    (work / "open").write_text("KEY of nothing\n")
    rules = {"deny": ["Read(.env*)"], "allow": ["Read", "Edit", "Write", "Grep", "Bash"]}
    async with Toolbox(work, mode=request.param, settings={"permissions": rules}) as made:
        yield made


@pytest.mark.parametrize(("tool", "fields"), USES, ids=[tool for tool, _ in USES])
async def test_every_tool_refuses_it_as_denied_whether_it_is_there_or_not(
    box: Toolbox, tool: str, fields: dict[str, Any]
) -> None:
    texts = []
    for name in (".env", ".env.absent"):
        result = await box.call(tool, {"file_path": name, **fields})
        assert result.is_error and "Permission denied" in result.text
        assert "Read(.env*)" in result.text and "hunter2" not in result.text
        texts.append(result.text.replace(f"/{name} ", "/NAME "))
    assert texts[0] == texts[1]
    assert Path(box.workspace.root, ".env").read_text() == "KEY=hunter2\n"


async def test_a_notebook_is_no_exception(box: Toolbox) -> None:
    result = await box.call("NotebookEdit", notebook_path=".env.ipynb", new_source="x", edit_mode="insert")
    assert result.is_error and "Permission denied" in result.text


async def test_searches_find_neither_the_file_nor_a_line_of_it(box: Toolbox) -> None:
    assert "Permission denied" in (await box.call("Grep", pattern="KEY", path=".env")).text
    for mode in ("content", "files_with_matches", "count"):
        found = (await box.call("Grep", pattern="KEY", output_mode=mode)).text
        assert "open" in found and ".env" not in found and "hunter2" not in found
    assert ".env" not in (await box.call("Glob", pattern=".*")).text
    assert ".env" not in (await box.call("LS", path=".")).text


@pytest.mark.parametrize(
    "command",
    ["cat .env", 'grep -E "A|B" .env', "cat -A .env", 'export T="$(cat .env)"', "echo x >> .env", "cp .env a"],
)
async def test_a_command_that_names_it_is_denied_in_every_mode(box: Toolbox, command: str) -> None:
    decision = await box.explain("Bash", command=command)
    assert decision.behavior == "deny"
    assert "hunter2" not in (await box.call("Bash", command=command)).text


async def test_no_hook_lifts_it(box: Toolbox) -> None:
    class Yes:
        def wants(self, plan: Any) -> bool:
            return True

        async def advise(self, plan: Any) -> Any:
            from wieldy.core.decision import Advice

            return Advice((Opinion("guard", "allow", "go on"),))

    async with Toolbox(
        box.workspace.root, mode=box.policy.mode, settings=dict(box.settings.values), advisers=[Yes()]
    ) as vouched:
        for tool, fields in USES:
            assert "Permission denied" in (await vouched.call(tool, {"file_path": ".env", **fields})).text
