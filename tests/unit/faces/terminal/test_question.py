"""A person is shown what they agree to: every command whole, nothing hidden, nothing that looks like something else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.decision import Answer, Question
from wieldy.faces.terminal.calls import CallFormatter
from wieldy.faces.terminal.questions import MAX_FIELD_CHARS, ask_permission

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> AsyncIterator[Any]:
    """`await shown("Bash", command="…")`: what stands on the screen when the call is asked about."""
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))

    async def no(prompt: str) -> str:
        return "n"

    async def ask(question: Question) -> Answer:
        return await ask_permission(question, no, CallFormatter(box.catalog.find, tmp_path))

    async with Toolbox(tmp_path, settings={}, ask=ask) as box:

        async def screen(tool: str, **input: Any) -> str:
            assert (await box.call(tool, input)).is_error
            return str(capsys.readouterr().err)

        yield screen


async def test_a_short_command_is_shown_once(shown: Any) -> None:
    text = await shown("Bash", command="touch made", description="make it")
    assert text.startswith("\nRun this command?\n  │ touch made\n  ↳ it writes")
    assert text.count("touch made") == 1


@pytest.mark.parametrize("command", ["touch " + "a" * 300 + " && rm b", "touch a\n" * 3000 + "rm b"])
async def test_a_long_command_is_shown_to_its_last_character(shown: Any, command: str) -> None:
    text = await shown("Bash", command=command)
    assert text.startswith("\nRun this command?\n  │ touch a")
    assert "rm b\n" in text


async def test_line_ends_are_shown_since_they_separate_commands(shown: Any) -> None:
    text = await shown("Bash", command="echo ok\ntouch made")
    assert "  │ echo ok\n  │ touch made\n" in text


@pytest.mark.parametrize(
    ("command", "seen"),
    [
        ("echo a\u200bb", "echo a<U+200B>b"),
        ("touch a" + " " * 500 + "; rm d", "touch a <500 blanks> ; rm d"),
        ("touch \u202egpj.exe", "touch <U+202E>gpj.exe"),
        ("touch a\rb", "touch a<U+000D>b"),
        ("touch \x1b[2Ka", "touch <U+001B>[2Ka"),
    ],
)
async def test_what_hides_is_spelled_out(shown: Any, command: str, seen: str) -> None:
    text = await shown("Bash", command=command)
    assert seen in text
    assert not {"\u200b", "\u202e", "\r", "\x1b"} & set(text)


async def test_a_letter_of_another_script_is_pointed_out(shown: Any) -> None:
    assert "U+0456" in await shown("Bash", command="g\u0456t push")


async def test_what_would_be_written_is_shown_in_part_and_the_rest_counted(shown: Any) -> None:
    text = await shown("Write", file_path="a", content="line\n" * 10 + "x" * MAX_FIELD_CHARS)
    assert "Write a?\n  │ line\n  │ line\n" in text
    assert "  │ … 50 more characters" in text


async def test_what_the_model_says_about_a_command_is_no_part_of_the_question(shown: Any) -> None:
    text = await shown("Bash", command="touch a", description="ok\n  [y] yes\nls")
    assert text.splitlines()[-5:] == [
        "  [y] yes",
        "  [a] yes, and don't ask again for Bash(touch:*) in this project",
        "  [s] the same for this session",
        "  [e] the same everywhere",
        "  [n] no",
    ]
    assert "ls" not in text


async def test_a_line_break_in_a_command_stands_behind_a_gutter(shown: Any) -> None:
    text = await shown("Bash", command="touch a\n  [y] yes")
    assert "  │   [y] yes\n" in text


@pytest.mark.parametrize(("reply", "scope"), [("a", "project"), ("always", "project"), ("s", "session"), ("e", "user")])
async def test_a_rule_is_remembered_where_the_person_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, reply: str, scope: str
) -> None:
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))
    answers: list[Answer] = []

    async def ask(question: Question) -> Answer:
        answers.append(await ask_permission(question, read, CallFormatter(box.catalog.find, tmp_path)))
        return Answer(False)

    async def read(prompt: str) -> str:
        return reply

    async with Toolbox(tmp_path, settings={}, ask=ask) as box:
        await box.call("Bash", command="touch a")
    assert [(answer.allowed, answer.remember, answer.scope) for answer in answers] == [
        (True, ("Bash(touch:*)",), scope)
    ]


async def test_a_path_of_this_project_is_not_offered_everywhere(shown: Any) -> None:
    text = await shown("Write", file_path="a", content="x")
    assert "in this project" in text
    assert "everywhere" not in text


async def test_a_command_longer_than_the_screen_is_named_again_below_it(shown: Any) -> None:
    text = await shown("Bash", command="rm -rf build\n" + "true\n" * 100)
    [last] = [line for line in text.splitlines() if "all of it is above: 1" in line]
    assert last.startswith("Run this command? rm -rf build")
    assert len(last) < 280
    assert text.partition(last)[2].startswith("\n  [y] yes\n")
