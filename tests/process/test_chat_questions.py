"""What the model asks of the person, answered at a real terminal."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from tests.needs import skip_untested
from tests.process.test_chat import chat as chat  # noqa: PLC0414 - a fixture of that name

ASK = {"call": "AskUser", "input": {"questions": [{"question": "Which one?", "options": ["left", "right"]}]}}
PLAN = {"call": "ExitPlan", "input": {"plan": "1. write made"}}
WRITE = {"call": "Write", "input": {"file_path": "made", "content": "x\n"}}


@pytest.mark.parametrize(("typed", "answer"), [("2", "right"), ("neither, go back", "neither, go back")])
def test_a_question_is_answered_by_number_or_in_words(chat, typed, answer):
    screen = chat(turns=[[ASK], [{"text": "Understood."}]])
    screen.type("go")
    screen.wait_for("Which one?")
    screen.wait_for("[2] right")
    screen.answer(typed)
    screen.wait_for(f"→ {answer}")
    screen.wait_for("Understood.")


@pytest.mark.parametrize(
    ("typed", "said"), [("1", "commands run in the sandbox without asking; kept"), ("2", "ask first; kept")]
)
def test_the_answer_about_the_sandbox_says_what_counts_from_now_on(chat, wieldy, tmp_path, typed, said):
    if "✓ sandbox" not in wieldy("doctor").stdout:
        skip_untested("the offer of the sandbox: bubblewrap does not work here")
    (tmp_path / "state/settings.json").unlink()
    screen = chat(turns=[[{"text": "Hello."}]])
    screen.wait_for("Run commands in the sandbox without asking?")
    screen.wait_for("a number")
    screen.answer(typed)
    screen.wait_for(said)


def test_a_plan_is_shown_whole_and_work_begins_when_it_is_approved(chat, project):
    screen = chat("--permission-mode", "plan", turns=[[PLAN], [WRITE], [{"text": "Made it."}]])
    screen.type("go")
    screen.wait_for("1. write made")
    screen.wait_for("work starts only when you approve the plan")
    screen.answer("y")
    screen.wait_for("made")
    screen.answer("y")
    screen.wait_for("Made it.")
    assert (project / "made").read_text() == "x\n"


def test_a_tool_called_by_hand_asks_at_the_terminal(chat):
    screen = chat("call", "AskUser", json.dumps(ASK["input"]))
    screen.wait_for("[2] right")
    screen.wait_for("  > ")
    screen.type("2")
    screen.wait_for("→ right")
    assert screen.process.wait(20) == 0


def test_what_was_typed_before_a_question_of_a_call_is_no_answer(chat, project):
    screen = chat("call", "Bash", "command=touch made")
    screen.type("y")
    screen.wait_for("[n] no")
    screen.wait_for("  > ")
    screen.type("n")
    screen.wait_for("you declined it")
    assert not (project / "made").exists()


def test_a_prompt_of_a_server_is_told_to_the_model(chat, wieldy):
    server = Path(__file__).parents[1] / "unit" / "mcp" / "prompting_server.py"
    assert wieldy("mcp", "add", "p", "--scope", "user", "--", sys.executable, str(server)).returncode == 0
    screen = chat(turns=[[{"text": "Dear Ann!"}]])
    screen.wait_for(">")
    screen.type("/mcp__p__greet")
    screen.wait_for("name is missing: /mcp__p__greet name [style]")
    screen.type("/mcp__p__greet Ann")
    screen.wait_for("Dear Ann!")
    screen.type("/mcp")
    screen.wait_for("/mcp__p__greet name [style]  Greet somebody.")
    screen.type("/mcp__p__other")
    screen.wait_for("there is no /mcp__p__other")


def test_a_line_typed_ahead_of_a_question_does_not_answer_it(chat, project):
    turns = [[{"pause": 1}, {"call": "Bash", "input": {"command": "touch made"}}], [{"text": "Over."}]]
    screen = chat(turns=turns)
    screen.wait_for(">")
    screen.type("make it")
    screen.type("y")
    screen.press(b"y")
    screen.wait_for("[n] no")
    screen.answer("n")
    screen.wait_for("instead?")
    screen.answer("")
    screen.wait_for("Over.")
    assert not (project / "made").exists()
