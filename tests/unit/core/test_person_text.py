"""Each refusal and failure has a text for the model and one for the person."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.words_for_models import FOR_MODELS

from wieldy import Toolbox, tool
from wieldy.core.decision import Answer
from wieldy.core.errors import ToolFailure
from wieldy.core.text import without_reminders
from wieldy.tools import MODULES, builtin_tool


@tool
async def deploy(target: str) -> str:
    """Deploy."""
    raise ToolFailure("It did not work.", "Send it again.", stderr="Use the force: 1", person="the server is down")


NOTEBOOK = '{"cells": [], "metadata": {}, "nbformat": 4, "nbformat_minor": 5}'
# More calls that fail than the one that each tool declares: those of a person who does everything wrong.
FAILING: dict[str, list[dict[str, Any]]] = {
    "Agent": [
        {"agent_type": "nobody", "prompt": "x", "description": "x"},
        {"agent_type": "explore", "prompt": "", "description": "x"},
        {"agent_id": "agent_x", "stop": True, "prompt": "x"},
        {"agent_type": "explore", "prompt": "x", "description": "x"},
    ],
    "Architect": [{"prompt": "x"}],
    "AskUser": [{"questions": [{"question": "Which?", "options": ["a", "b"]}]}],
    "Bash": [
        {"command": "a\0b"},
        {"command": "rm -rf /"},
        {"command": "touch made"},
        {"command": "false"},
    ],
    "BashOutput": [{"bash_id": "bash_9"}, {"bash_id": "bash_9", "filter": "("}],
    "BrowserClick": [{"element": "x", "ref": "e1"}],
    "BrowserNavigate": [{"url": "http://127.0.0.1:1/"}],
    "BrowserType": [{"element": "x", "ref": "e1", "text": "x"}],
    "Edit": [
        {"file_path": "b.txt", "old_string": "zzz", "new_string": "y"},
        {"file_path": "b.txt", "old_string": "", "new_string": "y"},
        {"file_path": "b.txt", "old_string": "l", "new_string": "y"},
        {"file_path": "b.txt", "old_string": "l", "new_string": "y", "expected_replacements": 7},
        {"file_path": "b.txt", "old_string": "hello", "new_string": "hello"},
        {"file_path": "b.txt", "old_string": "hello", "new_string": "# ... rest of the code"},
        {"file_path": "unread.txt", "old_string": "text", "new_string": "b"},
        {"file_path": "data.bin", "old_string": "a", "new_string": "b"},
        {"file_path": ".", "old_string": "a", "new_string": "b"},
        {"file_path": "", "old_string": "a", "new_string": "b"},
        {"file_path": "~nobody/x", "old_string": "a", "new_string": "b"},
        {"file_path": "x" * 5000, "old_string": "a", "new_string": "b"},
        {"file_path": "a\0b", "old_string": "a", "new_string": "b"},
    ],
    "ExitPlan": [{"plan": "x"}],
    "FileSearch": [
        {"pattern": "hello", "path": "nowhere"},
        {"pattern": "hello", "file_glob": "{a"},
        {"pattern": "hello", "replace_with": "\\9", "preview_only": False},
        {"pattern": ".", "replace_with": "x", "preview_only": False, "max_files": 1},
    ],
    "Glob": [{"pattern": "*", "path": "b.txt"}, {"pattern": "{a"}],
    "Grep": [
        {"pattern": "x", "path": "nowhere"},
        {"pattern": "x", "type": "nosuch"},
        {"pattern": "a\0"},
    ],
    "LS": [{"path": "b.txt"}],
    "MemoryRead": [{"path": "nowhere.md"}],
    "MemoryWrite": [{"path": "nowhere.md", "content": ""}],
    "MultiEdit": [
        {"file_path": "b.txt", "edits": []},
        {"file_path": "b.txt", "edits": [{"old_string": "zzz", "new_string": "y"}]},
        {"file_path": "b.txt", "edits": [{"old_string": "hello", "new_string": "y"}] * 2},
        {"file_path": "b.txt", "edits": [{"old_string": "hello", "new_string": new} for new in "xy"]},
        {"file_path": "b.txt", "edits": [{"old_string": "", "new_string": "y"}]},
    ],
    "NotebookEdit": [
        {"notebook_path": "b.txt", "new_source": "x", "edit_mode": "insert"},
        {"notebook_path": "n.ipynb", "new_source": "x", "cell_id": "nobody"},
        {"notebook_path": "n.ipynb", "new_source": "x"},
    ],
    "NotebookRead": [
        {"notebook_path": "b.txt"},
        {"notebook_path": "nowhere"},
        {"notebook_path": "n.ipynb", "cell_id": "x"},
    ],
    "Read": [
        {"file_path": "."},
        {"file_path": "data.bin"},
        {"file_path": "bad.png"},
        {"file_path": "bad.pdf"},
        {"file_path": "b.txt/inner"},
        {"file_path": "b.txt", "pages": "9", "offset": "no"},
    ],
    "Skill": [{"skill": "nobody"}, {"skill": "hidden"}],
    "TodoWrite": [{"todos": "x"}],
    "WebFetch": [
        {"url": "http://127.0.0.1:1/", "prompt": "x"},
        {"url": "http://user:pw@example.org/", "prompt": "x"},
        {"url": "http://no such", "prompt": "x"},
        {"url": "http://localhost/", "prompt": "x"},
    ],
    "Write": [
        {"file_path": "unread.txt", "content": "x"},
        {"file_path": "b.txt/inner", "content": "x"},
        {"file_path": "data.bin", "content": "x"},
        {"file_path": "b.txt", "content": "# ... existing code ..."},
    ],
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    root = tmp_path / "project"
    (root / ".wieldy/skills/hidden").mkdir(parents=True)
    (root / ".wieldy/skills/hidden/SKILL.md").write_text(
        "---\nname: hidden\ndescription: x\ndisable-model-invocation: true\n---\nx\n"
    )
    for name, content in {"b.txt": b"hello\n", "unread.txt": b"text\n", "data.bin": b"\0\1\2" * 50}.items():
        (root / name).write_bytes(content)
    (root / "n.ipynb").write_text(NOTEBOOK)
    (root / "bad.png").write_bytes(b"\x89PNG\r\n\x1a\n broken")
    (root / "bad.pdf").write_bytes(b"%PDF-1.4 broken")
    return root


FEATURES = ("architect", "browser", "memory", "stickers")
OPTIONS: list[dict[str, Any]] = [
    {},
    {"mode": "plan"},
    {"mode": "bypassPermissions"},
    {"ask": lambda question: False},
    {"ask": lambda question: Answer(False, "not now")},
]


@pytest.mark.asyncio
@pytest.mark.parametrize("options", OPTIONS, ids=["unattended", "plan", "bypass", "no", "no with words"])
async def test_no_failing_call_of_any_tool_shows_a_person_what_is_written_for_a_model(
    folder: Path, options: dict[str, Any]
) -> None:
    settings = {"features": dict.fromkeys(FEATURES, True)}
    shown: list[str] = []
    async with Toolbox(folder, tools=[deploy], settings=settings, **options) as box:
        await box.call("Read", file_path="b.txt")
        await box.call("Read", file_path="n.ipynb")
        calls: list[tuple[str, Any]] = [
            (name, input)
            for name in MODULES
            for input in [builtin_tool(name).fails, *FAILING.get(name, ()), {"nonsense": 1}, "{"]  # type: ignore[union-attr]
        ]
        for name, input in [*calls, ("deplyo", {}), ("deploy", {})]:
            result = await box.call(name, input)
            text = result.person_text
            assert not FOR_MODELS.search(text), f"{name} {str(input)[:100]}: {text}"
            assert text.strip() or not result.is_error, f"{name} {str(input)[:100]}"
            shown += [text] if result.is_error else []
    assert len(shown) > 80


@pytest.mark.asyncio
@pytest.mark.parametrize("name", MODULES)
async def test_every_tool_declares_a_call_that_fails(folder: Path, name: str) -> None:
    tool = builtin_tool(name)
    assert tool is not None and tool.fails is not None
    settings = {"features": dict.fromkeys(FEATURES, True)}
    async with Toolbox(folder, settings=settings, mode="bypassPermissions") as box:
        assert (await box.call(name, tool.fails)).is_error


def test_reminders_are_left_out() -> None:
    text = "a.txt holds 1 line.\n<system-reminder>The file is short.</system-reminder>"
    assert without_reminders(text) == "a.txt holds 1 line."


@pytest.mark.asyncio
async def test_a_failure_says_to_the_person_what_its_tool_says(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    async with Toolbox(tmp_path, tools=[deploy], mode="bypassPermissions", settings={}) as box:
        result = await box.call("deploy", target="a")
    assert result.text == "It did not work. Send it again.\nUse the force: 1"
    assert result.person_text == "the server is down\nUse the force: 1"


@pytest.mark.asyncio
async def test_a_denial_names_the_reason_and_the_answer(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    async with Toolbox(tmp_path, settings={"permissions": {"deny": ["Bash(make:*)"]}}) as box:
        assert (await box.call("Bash", command="make x")).person_text.startswith("not permitted: rule `Bash(make:*)`")
        asked = (await box.call("Bash", command="npm install")).person_text
        assert asked.endswith("there is no one to ask; to allow it: wieldy permissions allow 'Bash(npm install)'")
    async with Toolbox(tmp_path, settings={}, ask=lambda question: Answer(False, "use yarn")) as box:
        assert (await box.call("Bash", command="npm install")).person_text == "you declined it: use yarn"


@pytest.mark.asyncio
async def test_a_tool_that_declares_nothing_asks_and_names_the_options_that_would_tell(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    async with Toolbox(tmp_path, tools=[deploy], settings={}) as box:
        decision = await box.explain("deploy", {"target": "a"})
    assert decision.behavior == "ask"
    assert "it declares no effects; @tool takes read_only=True, reads=…, writes=… or effects=…" in decision.why
