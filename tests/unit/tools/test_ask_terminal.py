from __future__ import annotations

import pytest

from wieldy.core.user_questions import Inquiry, Reply
from wieldy.terminal.questions import AtTerminal, shown, understood

ONE = Inquiry("Which database?", ("Postgres", "SQLite", "7"))
SEVERAL = Inquiry("Which targets?", ("linux", "mac"), several=True)


@pytest.mark.parametrize(
    ("said", "inquiry", "reply"),
    [
        ("2", ONE, Reply(("SQLite",))),
        (" 1 \n", ONE, Reply(("Postgres",))),
        ("sqlite", ONE, Reply(("SQLite",))),
        ("7", ONE, Reply(("7",))),
        ("1 2", ONE, Reply(words="1 2")),
        ("0", ONE, Reply(words="0")),
        ("9", ONE, Reply(words="9")),
        ("MariaDB", ONE, Reply(words="MariaDB")),
        ("", ONE, Reply()),
        ("2, 1,1", SEVERAL, Reply(("mac", "linux"))),
        ("2 3", SEVERAL, Reply(words="2 3")),
        ("3", Inquiry("How many?"), Reply(words="3")),
    ],
)
def test_what_a_line_means(said: str, inquiry: Inquiry, reply: Reply) -> None:
    assert understood(said, inquiry) == reply


def test_nothing_hides_in_a_question() -> None:
    assert "<U+202E>" in shown(Inquiry("a\u202eb", ("x",)))
    assert "\x1b" not in shown(Inquiry("a", ("\x1b[2Jx",)))


@pytest.mark.asyncio
async def test_all_questions_are_put_and_silence_is_no_answer(capsys: pytest.CaptureFixture[str]) -> None:
    lines = iter(["2", "both"])

    async def line(prompt: str) -> str:
        return next(lines, "")

    assert await AtTerminal(line).answer([ONE, SEVERAL]) == [Reply(("SQLite",)), Reply(words="both")]
    told = capsys.readouterr().err
    assert "Which database?\n  [1] Postgres\n  [2] SQLite\n" in told
    assert "(numbers, or your own words; Enter: no answer)" in told
    assert await AtTerminal(line).answer([ONE, SEVERAL]) is None
