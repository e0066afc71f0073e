"""Notification hooks run while a session waits for the person: a permission prompt, a question, or idle at the prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wieldy import Script, Session, Toolbox, tool
from wieldy.core.decision import Question
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.engine.workspace_services import HostServices
from wieldy.policy.hooks.config import python_hook

pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


@tool
async def deploy() -> str:
    """Deploy."""
    return "deployed"


class Recorder:
    """A Notification hook that records its payloads."""

    def __init__(self) -> None:
        self.payloads: list[dict[str, Any]] = []
        self.fired = asyncio.Event()
        self.hook = python_hook("Notification", self._record)

    def _record(self, payload: dict[str, Any]) -> None:
        self.payloads.append(payload)
        self.fired.set()

    @property
    def types(self) -> list[str]:
        return [payload["notification_type"] for payload in self.payloads]


async def test_a_permission_prompt_notifies_while_it_waits(tmp_path: Path) -> None:
    recorder = Recorder()

    async def ask(question: Question) -> bool:
        await asyncio.wait_for(recorder.fired.wait(), 5)
        return True

    async with Toolbox(tmp_path, settings={}, tools=[deploy], hooks=[recorder.hook], ask=ask) as box:
        assert (await box.call("deploy")).text == "deployed"
    assert recorder.types == ["permission_prompt"]
    assert "deploy" in recorder.payloads[0]["message"]
    assert recorder.payloads[0]["hook_event_name"] == "Notification"


async def test_an_answer_at_once_and_a_refusal_notify_nobody(tmp_path: Path) -> None:
    recorder = Recorder()

    async def agree(question: Any) -> bool:
        return True

    for ask in (agree, None):
        async with Toolbox(tmp_path, settings={}, tools=[deploy], hooks=[recorder.hook], ask=ask) as box:
            await box.call("deploy")
    assert recorder.payloads == []


async def test_a_hook_that_answers_for_the_person_leaves_nothing_to_notify(tmp_path: Path) -> None:
    recorder = Recorder()
    allow = python_hook("PermissionRequest", lambda payload: {"decision": "allow"})
    async with Toolbox(tmp_path, settings={}, tools=[deploy], hooks=[recorder.hook, allow]) as box:
        assert (await box.call("deploy")).text == "deployed"
    assert recorder.payloads == []


async def test_a_question_to_the_person_notifies(tmp_path: Path) -> None:
    recorder = Recorder()

    class Asker:
        async def answer(self, inquiries: Sequence[UserQuestion]) -> Sequence[UserAnswer]:
            await asyncio.wait_for(recorder.fired.wait(), 5)
            return [UserAnswer(words="red")]

    host = HostServices(question_handler=Asker())
    async with Toolbox(tmp_path, settings={}, hooks=[recorder.hook], host=host) as box:
        result = await box.call("AskUser", questions=[{"question": "Which color?", "options": ["red", "blue"]}])
    assert "red" in result.text
    assert [(payload["notification_type"], payload["message"]) for payload in recorder.payloads] == [
        ("elicitation_dialog", "Which color?")
    ]


async def test_an_aborted_question_ends_its_notification(tmp_path: Path) -> None:
    started = asyncio.Event()

    async def linger(payload: dict[str, Any]) -> None:
        started.set()
        await asyncio.sleep(60)

    async def ask(question: Question) -> bool:
        await asyncio.sleep(60)
        return True

    async with Toolbox(
        tmp_path, settings={}, tools=[deploy], hooks=[python_hook("Notification", linger)], ask=ask
    ) as box:
        call = asyncio.create_task(box.call("deploy"))
        await asyncio.wait_for(started.wait(), 5)
        box.abort()
        assert (await asyncio.wait_for(call, 5)).is_error


async def test_a_session_that_waits_for_input_notifies_once_and_a_prompt_stops_the_timer(tmp_path: Path) -> None:
    recorder = Recorder()
    settings = {"messageIdleNotifThresholdMs": 30}
    model = Script([[{"text": "one"}], [{"text": "two"}]])
    async with Session(tmp_path, model=model, settings=settings, hooks=[recorder.hook]) as session:
        await session.ask("first")
        await asyncio.wait_for(recorder.fired.wait(), 5)
        await session.ask("second")
    assert recorder.types == ["idle_prompt"]
    assert "waiting for your input" in recorder.payloads[0]["message"]
