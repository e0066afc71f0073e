"""A session that happened becomes a script that makes it happen again; its calls can be judged anew."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from wieldy import Session, tool
from wieldy.agent.store import past_calls
from wieldy.core.errors import SessionError
from wieldy.testing import Script, record


@tool(read_only=True)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


@tool
async def risky(word: str = "") -> str:
    """Needs permission."""
    return word


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    return tmp_path


def session(root: Path, model: Script, **options) -> Session:
    return Session(root, model=model, tools=[add, risky], builtins=False, **{"settings": {}, **options})


@pytest.mark.asyncio
async def test_a_recorded_session_happens_again(root):
    fail = {"fail": "overloaded", "retry_after": 0}
    turns: list[list[dict[str, Any]]] = [
        [{"text": "lost"}, fail],
        [{"think": "hm", "signature": "s"}, {"text": "so"}, {"call": "add", "input": {"a": 1, "b": 2}}],
        [{"usage": {"input_tokens": 5, "output_tokens": 2}}, {"text": "3"}],
        [{"text": "cut"}, {"stop": "max_tokens"}],
    ]
    async with session(root, Script(turns)) as first:
        await first.ask("add")
        with pytest.raises(SessionError):
            await first.ask("more")
    script = record(first.box.workspace.session_dir)
    (root / "again.json").write_text(json.dumps(script))
    async with session(root, Script.load(root / "again.json")) as second:
        assert await second.ask("add") == "3"
        with pytest.raises(SessionError):
            await second.ask("more")
        assert second.messages == first.messages
    assert script["recorded_from"] == "script"
    assert len(script["turns"]) == 3


def test_a_folder_without_a_session_is_said(tmp_path):
    with pytest.raises(SessionError, match="no transcript"):
        record(tmp_path)


@pytest.mark.asyncio
async def test_past_calls_come_with_what_was_decided_then(root):
    calls = [
        {"call": "add", "input": {"a": 1, "b": 2}},
        {"call": "add", "input": {"a": "one"}},
        {"call": "nowhere", "input": {}},
        {"call": "risky", "input": {"word": "x"}},
    ]
    for options, decided in (
        ({}, "ask"),
        ({"ask": lambda question: True}, "ask"),
        ({"mode": "bypassPermissions"}, "allow"),
        ({"settings": {"permissions": {"deny": ["risky(word:x)", "risky"]}}}, "deny"),
        ({"settings": {"permissions": {"allow": ["risky"]}}}, "allow"),
    ):
        async with session(root, Script([calls, [{"text": "done"}]]), **options) as ran:
            await ran.ask("go")
        past = list(past_calls(ran.box.workspace.session_dir))
        expected = [("add", {"a": 1, "b": 2}, "allow"), ("risky", {"word": "x"}, decided)]
        assert past == expected, options
