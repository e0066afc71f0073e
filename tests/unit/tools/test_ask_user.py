from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from wieldy import Toolbox
from wieldy.core.outcome import Refused
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.engine.workspace_services import HostServices
from wieldy.tools.ask_user import ask_user

pytestmark = pytest.mark.asyncio

QUESTIONS = [
    {"question": "Which database?", "options": ["Postgres (recommended)", "SQLite"]},
    {"question": "Which targets?", "options": ["linux", "mac", "windows"], "multi_select": True},
    {"question": "Which name?"},
]


class Sitting:
    """A person with their answers ready."""

    def __init__(self, *replies: UserAnswer) -> None:
        self.replies = replies
        self.heard: list[UserQuestion] = []

    async def answer(self, inquiries: Sequence[UserQuestion]) -> Sequence[UserAnswer] | None:
        self.heard += inquiries
        return self.replies or None


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))


async def test_the_answers_come_back_options_and_own_words(tmp_path: Path) -> None:
    person = Sitting(
        UserAnswer(("SQLite",)), UserAnswer(("linux", "mac"), "no windows yet"), UserAnswer(words="wieldy")
    )
    async with Toolbox(tmp_path, settings={}, host=HostServices(question_handler=person)) as box:
        result = await box.call("AskUser", questions=QUESTIONS)
    assert result.text == (
        "The user answered:\nWhich database?\n→ SQLite\nWhich targets?\n→ linux; mac; no windows yet\nWhich name?\n→ wieldy"
    )
    assert result.data["answers"]["Which name?"] == "wieldy"
    assert person.heard[0] == UserQuestion("Which database?", ("Postgres (recommended)", "SQLite"))
    assert person.heard[1].several


async def test_where_nobody_sits_it_is_neither_offered_nor_answered_but_says_how_to_go_on(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, mode="bypassPermissions") as box:
        result = await box.call("AskUser", questions=QUESTIONS)
        assert isinstance(result.outcome, Refused)
        assert "no person is there to answer. Do without it or use another tool: choose what is safest" in result.text
        (row,) = [row for row in await box.offer() if row.tool.name == "AskUser"]
        assert (row.offered, row.reason) == (False, "no person is there to answer")
    person = Sitting()
    async with Toolbox(tmp_path, settings={}, host=HostServices(question_handler=person)) as box:
        assert next(row.offered for row in await box.offer() if row.tool.name == "AskUser")


async def test_a_person_may_decline(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, host=HostServices(question_handler=Sitting())) as box:
        result = await box.call("AskUser", questions=QUESTIONS)
    assert result.is_error
    assert "does not want to answer" in result.text


async def test_a_yes_to_everything_is_no_answer(tmp_path: Path) -> None:
    async with Toolbox(tmp_path, settings={}, ask=lambda question: True) as box:
        assert "no person is there to answer" in (await box.call("AskUser", questions=QUESTIONS)).text


async def test_the_questions_are_shown_whole() -> None:
    assert ask_user.show_use({"questions": QUESTIONS}) == "Which database?\nWhich targets?\nWhich name?"
