from __future__ import annotations

from functools import partial

import pytest

from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.faces.terminal.questions import InquiryQuestions, ask_by_line, parse_answer, user_answer, user_inquiry

ONE = UserQuestion("Which database?", ("Postgres", "SQLite", "7"))
SEVERAL = UserQuestion("Which targets?", ("linux", "mac"), several=True)


@pytest.mark.parametrize(
    ("said", "question", "reply"),
    [
        ("2", ONE, UserAnswer(("SQLite",))),
        (" 1 \n", ONE, UserAnswer(("Postgres",))),
        ("sqlite", ONE, UserAnswer(("SQLite",))),
        ("7", ONE, UserAnswer(("7",))),
        ("1 2", ONE, UserAnswer(words="1 2")),
        ("0", ONE, UserAnswer(words="0")),
        ("9", ONE, UserAnswer(words="9")),
        ("MariaDB", ONE, UserAnswer(words="MariaDB")),
        ("", ONE, UserAnswer()),
        ("2, 1,1", SEVERAL, UserAnswer(("linux", "mac"))),
        ("2 3", SEVERAL, UserAnswer(words="2 3")),
        ("3", UserQuestion("How many?"), UserAnswer(words="3")),
    ],
)
def test_what_a_line_means(said: str, question: UserQuestion, reply: UserAnswer) -> None:
    inquiry = user_inquiry(question)
    assert user_answer(inquiry, parse_answer(said, inquiry)) == reply


@pytest.mark.asyncio
async def test_nothing_hides_in_a_question(capsys: pytest.CaptureFixture[str]) -> None:
    async def line(prompt: str) -> str:
        return "1"

    for question in (UserQuestion("a\u202eb", ("x",)), UserQuestion("a", ("\x1b[2Jx",))):
        await ask_by_line(user_inquiry(question), line)
    shown = capsys.readouterr().err
    assert "<U+202E>" in shown
    assert "\x1b" not in shown


@pytest.mark.asyncio
async def test_an_option_called_yes_is_no_permission(capsys: pytest.CaptureFixture[str]) -> None:
    async def line(prompt: str) -> str:
        return "2"

    inquiry = user_inquiry(UserQuestion("Sure?", ("yes", "no")))
    assert user_answer(inquiry, await ask_by_line(inquiry, line)) == UserAnswer(("no",))
    assert "[2] no" in capsys.readouterr().err


@pytest.mark.asyncio
async def test_all_questions_are_put_and_silence_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["2", "both"])

    async def line(prompt: str) -> str:
        return next(lines, "")

    questions = InquiryQuestions(partial(ask_by_line, read_line=line))
    assert await questions.answer([ONE, SEVERAL]) == [UserAnswer(("SQLite",)), UserAnswer(words="both")]
    told = capsys.readouterr().err
    assert "Which database?\n  [1] Postgres\n  [2] SQLite\n" in told
    assert "(numbers, or your own words; Enter: no answer)" in told
    assert await questions.answer([ONE, SEVERAL]) is None
