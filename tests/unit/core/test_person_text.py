"""Each refusal and failure has a text for the model and one for the person."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox, tool
from wieldy.core.decision import Answer
from wieldy.core.errors import ToolFailure
from wieldy.core.person_text import person_text

FOR_MODELS = re.compile(
    r"Go on without|system-reminder|[Ss]end (it|this|the call) again|tell the user|Do not try|InputValidationError|the user"
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/a is a directory, not a file. Use LS or Glob to see what is in it.", "/a is a directory, not a file."),
        ("x cannot be found: no such host. Check the spelling of the host.", None),
        ("Send a shorter one.", "Send a shorter one."),
        ("a.txt holds 1 line.\n<system-reminder>The file is short.</system-reminder>", "a.txt holds 1 line."),
        ("It failed.\nRead the file again, then send another edit.", "It failed."),
        ("InputValidationError: Read was not run. The JSON is cut off. Send the call again.",
         "Read was not run. The JSON is cut off."),
    ],
)  # fmt: skip
def test_a_person_is_told_the_facts_without_advice_to_a_model(text: str, expected: str | None) -> None:
    assert person_text(text) == (text if expected is None else expected)


@tool
async def deploy(target: str) -> str:
    """Deploy."""
    raise ToolFailure("It did not work. Send it again.", stderr="Use the force: 1", person="the server is down")


async def results(root: Path, **options: Any) -> Any:
    async with Toolbox(root, tools=[deploy], **options) as box:
        yield await box.call("deploy", target="a")
        yield await box.call("deploy", {})
        yield await box.call("deplyo", {})
        yield await box.call("Read", file_path="nowhere")
        yield await box.call("Read", file_path=".")
        yield await box.call("Bash", command="rm -rf /")
        yield await box.call("Bash", command="npm install")
        yield await box.call("Edit", file_path="b.txt", old_string="zzz", new_string="y")
        yield await box.call("AskUser", {"questions": [{"question": "Which?", "options": ["a", "b"]}]})


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "options",
    [{"settings": {}}, {"mode": "plan"}, {"ask": lambda question: False}, {"ask": lambda question: "not now"}],
)
async def test_no_result_shows_a_person_what_is_written_for_a_model(tmp_path, monkeypatch, options) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    (tmp_path / "b.txt").write_text("hello\n")
    async for result in results(tmp_path, **options):
        assert result.is_error
        assert not FOR_MODELS.search(result.person_text), result.person_text
        assert result.person_text.strip()


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
        assert asked.endswith("nobody is there to ask; to allow it: wieldy permissions allow 'Bash(npm install)'")
    async with Toolbox(tmp_path, settings={}, ask=lambda question: Answer(False, "use yarn")) as box:
        assert (await box.call("Bash", command="npm install")).person_text == "you declined it: use yarn"


@pytest.mark.asyncio
async def test_a_tool_that_declares_nothing_asks_and_names_the_options_that_would_tell(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    async with Toolbox(tmp_path, tools=[deploy], settings={}) as box:
        decision = await box.explain("deploy", {"target": "a"})
    assert decision.behavior == "ask"
    assert "it declares no effects; @tool takes read_only=True, reads=…, writes=… or effects=…" in decision.why
