from __future__ import annotations

import pytest

from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.faces.terminal.questions import TerminalQuestions, format_question, parse_answer

ONE = UserQuestion("Which database?", ("Postgres", "SQLite", "7"))
SEVERAL = UserQuestion("Which targets?", ("linux", "mac"), several=True)


@pytest.mark.parametrize(
    ("said", "inquiry", "reply"),
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
        ("2, 1,1", SEVERAL, UserAnswer(("mac", "linux"))),
        ("2 3", SEVERAL, UserAnswer(words="2 3")),
        ("3", UserQuestion("How many?"), UserAnswer(words="3")),
    ],
)
def test_what_a_line_means(said: str, inquiry: UserQuestion, reply: UserAnswer) -> None:
    assert parse_answer(said, inquiry) == reply


def test_nothing_hides_in_a_question() -> None:
    assert "<U+202E>" in format_question(UserQuestion("a\u202eb", ("x",)))
    assert "\x1b" not in format_question(UserQuestion("a", ("\x1b[2Jx",)))


@pytest.mark.asyncio
async def test_all_questions_are_put_and_silence_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["2", "both"])

    async def line(prompt: str) -> str:
        return next(lines, "")

    assert await TerminalQuestions(line).answer([ONE, SEVERAL]) == [UserAnswer(("SQLite",)), UserAnswer(words="both")]
    told = capsys.readouterr().err
    assert "Which database?\n  [1] Postgres\n  [2] SQLite\n" in told
    assert "(numbers, or your own words; Enter: no answer)" in told
    assert await TerminalQuestions(line).answer([ONE, SEVERAL]) is None
