"""A person is shown what they agree to: every command whole, nothing hidden, nothing that looks like something else."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from wieldy import Toolbox
from wieldy.core.decision import Answer, Question
from wieldy.terminal.questions import MAX_SHOWN_CHARS, ask_permission

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> AsyncIterator[Any]:
    """`await shown("Bash", command="…")`: what stands on the screen when the call is asked about."""
    monkeypatch.setenv("WIELDY_HOME", str(tmp_path / "home"))

    async def no(prompt: str) -> str:
        return "n"

    async def ask(question: Question) -> Answer:
        return await ask_permission(question, no)

    async with Toolbox(tmp_path, settings={}, ask=ask) as box:

        async def screen(tool: str, **input: Any) -> str:
            assert (await box.call(tool, input)).is_error
            return str(capsys.readouterr().err)

        yield screen


async def test_a_short_command_is_shown_once(shown: Any) -> None:
    text = await shown("Bash", command="touch made", description="make it")
    assert text.startswith("\nmake it: touch made\n  ask: it writes")
    assert "  command:" not in text


@pytest.mark.parametrize("command", ["touch " + "a" * 300 + " && rm b", "touch a\n" * 3000 + "rm b"])
async def test_a_long_command_is_shown_to_its_last_character(shown: Any, command: str) -> None:
    text = await shown("Bash", command=command)
    assert text.partition("  command:\n")[2].startswith("  │ touch a")
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
    text = await shown("Write", file_path="a", content="line\n" * 10 + "x" * MAX_SHOWN_CHARS)
    assert "  content:\n  │ line\n  │ line\n" in text
    assert "  │ … 50 more characters" in text


async def test_a_line_break_in_a_description_cannot_fake_a_line(shown: Any) -> None:
    text = await shown("Bash", command="touch a", description="ok\n  [y] yes   [n] no\nls")
    assert "\nok⏎  [y] yes   [n] no⏎ls: touch a\n" in text
    assert [line for line in text.splitlines() if line.startswith("  [y]")] == [
        "  [y] yes   [a] yes, and always allow Bash(touch:*)   [n] no"
    ]


async def test_a_line_break_in_a_command_stands_behind_a_gutter(shown: Any) -> None:
    text = await shown("Bash", command="touch a\n  [y] yes   [n] no")
    assert "  │   [y] yes   [n] no\n" in text


async def test_a_command_longer_than_the_screen_is_named_again_below_it(shown: Any) -> None:
    text = await shown("Bash", command="rm -rf build\n" + "true\n" * 100)
    last = text.splitlines()[-3:]
    assert last[0].startswith("rm -rf build true")
    assert "all of it is above: 103 rows" in last[0]
    assert len(last[0]) < 260
    assert last[2].startswith("  [y] yes")
