"""Questions: which keys count, what is shown, what the answer means."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from wieldy import Toolbox
from wieldy.core.decision import Answer, Question
from wieldy.core.user_questions import UserAnswer, UserQuestion
from wieldy.faces.terminal.calls import CallFormatter
from wieldy.faces.terminal.questions import (
    GUARD_SECONDS,
    Choice,
    Inquiry,
    mark_parts,
    permission_answer,
    permission_inquiry,
    user_answer,
    user_inquiry,
)
from wieldy.faces.terminal.text import Row, row_text, row_width

pytestmark = pytest.mark.asyncio


def plain(rows: Sequence[Row]) -> str:
    return "\n".join(row_text(row) for row in rows)


async def asked(root: Path, monkeypatch: pytest.MonkeyPatch, tool: str, **input: Any) -> tuple[Question, Inquiry]:
    """The question that a call leads to, as the session shows it."""
    monkeypatch.setenv("WIELDY_HOME", str(root / "home"))
    questions: list[Question] = []

    def ask(question: Question) -> bool:
        questions.append(question)
        return False

    async with Toolbox(root, settings={}, ask=ask) as box:
        if tool == "Edit":
            await box.call("Read", file_path=input["file_path"])
        await box.call(tool, input)
        formatter = CallFormatter(box.catalog.find, box.workspace.root)
        return questions[0], permission_inquiry(questions[0], formatter)


async def test_a_question_gets_no_key_in_its_first_half_second() -> None:
    inquiry = Inquiry("Go on?", [], [Choice("Yes", "yes")])
    assert not inquiry.has_focus(100.0, draft=False), "it is not on the screen yet"
    inquiry.on_shown(100.0)
    assert not inquiry.has_focus(100.0 + GUARD_SECONDS / 2, draft=False)
    assert inquiry.has_focus(100.0 + GUARD_SECONDS, draft=False)


async def test_keys_that_go_elsewhere_make_a_question_wait_longer() -> None:
    inquiry = Inquiry("Go on?", [], [Choice("Yes", "yes")])
    inquiry.on_shown(100.0)
    inquiry.on_key_elsewhere(100.4)
    assert not inquiry.has_focus(100.6, draft=False)
    assert inquiry.has_focus(100.4 + GUARD_SECONDS, draft=False)


async def test_a_draft_keeps_the_keys_until_tab_which_counts_only_after_the_half_second() -> None:
    inquiry = Inquiry("Go on?", [], [Choice("Yes", "yes")])
    inquiry.on_shown(100.0)
    assert not inquiry.take_focus(100.1)
    assert not inquiry.has_focus(105.0, draft=True)
    assert inquiry.take_focus(105.0)
    assert inquiry.has_focus(105.0, draft=True)


async def test_the_part_of_a_command_that_no_rule_covers_is_marked() -> None:
    [spans] = mark_parts(["ls; touch x && echo hi"], ["touch x"])
    assert [(span.text, span.style) for span in spans] == [
        ("ls; ", ""),
        ("touch x", "bold underline"),
        (" && echo hi", ""),
    ]


async def test_a_command_is_shown_to_its_last_character_and_can_be_scrolled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    command = "touch made\n" + "\n".join(f"echo {n}" for n in range(200)) + "\n# the end"
    _, inquiry = await asked(tmp_path, monkeypatch, "Bash", command=command)
    shown = plain(inquiry.rows(80, 20, focused=True, draft=False))
    assert "echo 3" in shown
    assert "the end" not in shown
    assert "below: PgDn" in shown
    assert "PgUp" not in shown
    inquiry.scroll_by(1000)
    shown = plain(inquiry.rows(80, 20, focused=True, draft=False))
    assert "the end" in shown
    assert "above: PgUp" in shown
    assert "PgDn" not in shown


@pytest.mark.parametrize(("width", "most"), [(20, 4), (40, 9), (80, 20), (300, 70)])
async def test_a_question_fits_the_screen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, width: int, most: int
) -> None:
    command = "touch made\n" + "\n".join(f"echo {n}" for n in range(200))
    _, inquiry = await asked(tmp_path, monkeypatch, "Bash", command=command)
    for selected in range(len(inquiry.choices)):
        inquiry.selected = selected
        rows = inquiry.rows(width, most, focused=True, draft=False)
        assert len(rows) <= most
        assert all(row_width(row) < width for row in rows)
        assert any(row and row[0].text == "› " for row in rows), "the selected answer is on the screen"


async def test_what_cannot_be_seen_is_spelled_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, inquiry = await asked(tmp_path, monkeypatch, "Bash", command="touch a\u200bb\u202e && echo \x1b[2J")
    shown = plain(inquiry.rows(100, 40, focused=True, draft=False))
    assert "<U+200B>" in shown
    assert "<U+202E>" in shown
    assert "\x1b" not in shown


async def test_no_line_of_a_command_can_pass_for_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _, inquiry = await asked(tmp_path, monkeypatch, "Bash", command="touch a\n› 1  Yes, really")
    rows = [row_text(row) for row in inquiry.rows(100, 40, focused=True, draft=False)]
    assert [row[:4] for row in rows if "really" in row] == ["  │ ", "  ↳ "]


async def test_an_edit_is_asked_about_as_a_diff(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "a.py").write_text("x = 1\n")
    _, inquiry = await asked(tmp_path, monkeypatch, "Edit", file_path="a.py", old_string="x = 1", new_string="x = 2")
    shown = plain(inquiry.rows(100, 40, focused=True, draft=False))
    assert inquiry.title == "Change a.py?"
    assert "│ - x = 1" in shown
    assert "│ + x = 2" in shown


async def test_a_rule_is_remembered_in_the_chosen_scope(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question, inquiry = await asked(tmp_path, monkeypatch, "Bash", command="touch made")
    inquiry.move(1)
    inquiry.change_scope(1)
    inquiry.choose()
    answer = permission_answer(inquiry, question, await inquiry.result)
    assert answer == Answer(True, remember=("Bash(touch:*)",), scope="user")


async def test_a_rule_about_a_path_of_the_project_does_not_count_everywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, inquiry = await asked(tmp_path, monkeypatch, "Write", file_path="new.py", content="x\n")
    assert [scope for scope, _ in inquiry.scopes] == ["session", "project"]


async def test_several_options_are_marked_and_one_is_chosen_at_once() -> None:
    inquiry = user_inquiry(UserQuestion("Which?", ("a", "b", "c"), several=True))
    inquiry.choose(0)
    inquiry.choose(2)
    assert not inquiry.result.done()
    inquiry.choose()
    assert user_answer(inquiry, await inquiry.result) == UserAnswer(("a", "c"))
    single = user_inquiry(UserQuestion("Which?", ("a", "b")))
    single.choose(1)
    assert user_answer(single, await single.result) == UserAnswer(("b",))


async def test_words_are_an_answer_to_every_question_of_a_tool() -> None:
    inquiry = user_inquiry(UserQuestion("Which?", ("a", "b")))
    inquiry.choose(2)
    assert inquiry.entering_words
    inquiry.finish(" neither ")
    assert user_answer(inquiry, await inquiry.result) == UserAnswer((), "neither")


async def test_of_many_options_those_around_the_selected_one_are_shown() -> None:
    inquiry = Inquiry("Which prompt?", [], [Choice(f"prompt {n}", n) for n in range(50)])
    inquiry.move(-1)
    shown = plain(inquiry.rows(80, 15, focused=True, draft=False))
    assert "› 50  prompt 49" in shown
    assert len(shown.splitlines()) <= 15


async def test_what_a_guard_warns_of_is_not_chosen_by_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question, inquiry = await asked(tmp_path, monkeypatch, "Bash", command="rm -rf ~")
    inquiry.choose()
    assert permission_answer(inquiry, question, await inquiry.result) == Answer(False)
