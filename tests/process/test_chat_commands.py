"""What is typed for wieldy and not for the model, at a real terminal: a slip costs a line, never the session."""

from __future__ import annotations

import json

import pytest
from tests.process.test_chat import chat as chat  # noqa: PLC0414 - a fixture of that name


@pytest.mark.parametrize(
    ("typed", "said"),
    [
        ('/call Grep pattern="x', "a quotation mark is not closed"),
        ("/call Read b.txt c.txt", "`b.txt` is not key=value"),
        ("/call Read fil_path=b.txt", "did you mean `file_path`?"),
        ("/call Read - c.txt", "`-` is not key=value"),
        ("/undo call_that_never_was", "call_that_never_was"),
        ("/resume nobody", "no session of this folder has the id or the words `nobody`"),
    ],
)
def test_a_slip_is_one_line_and_the_session_goes_on(chat, typed, said):
    screen = chat(turns=[[{"text": "Still here."}]])
    screen.wait_for(">")
    screen.type(typed)
    screen.wait_for(said)
    screen.wait_for(">")
    screen.type("and now?")
    screen.wait_for("Still here.")


def test_an_answer_that_is_none_is_asked_for_again_with_those_there_are(chat):
    screen = chat(turns=[[{"call": "Bash", "input": {"command": "touch made"}}], [{"text": "Over."}]])
    screen.wait_for(">")
    screen.type("make it")
    screen.wait_for("[n] no")
    screen.answer("perhaps")
    screen.wait_for("y, a, s, e or n")
    screen.answer("n")
    screen.wait_for("instead?")
    screen.answer("")
    screen.wait_for("Over.")


@pytest.mark.parametrize("leave", [lambda screen: screen.interrupt(), lambda screen: screen.press(b"\x04")])
def test_a_question_that_is_left_asks_nothing_more_and_stops_the_turn(chat, project, leave):
    screen = chat(turns=[[{"call": "Bash", "input": {"command": "touch made"}}], [{"text": "Still here."}]])
    screen.wait_for(">")
    screen.type("make it")
    screen.wait_for("[n] no")
    screen.wait_for(">")
    leave(screen)
    screen.wait_for("interrupted", quietly="instead?")
    screen.wait_for(">")
    screen.type("and now?")
    screen.wait_for("Still here.")
    assert not (project / "made").exists()


def test_what_the_model_asks_stands_on_the_screen_once(chat):
    asked = {"call": "AskUser", "input": {"questions": [{"question": "Which one?", "options": ["left", "right"]}]}}
    screen = chat(turns=[[asked], [{"text": "Understood."}]])
    screen.wait_for(">")
    screen.type("go")
    screen.wait_for("Which one?")
    screen.answer("1")
    screen.wait_for("→ left", quietly="● Which one?")


def test_settings_that_cannot_be_read_are_named_when_the_session_begins(chat, project):
    (project / ".wieldy").mkdir()
    (project / ".wieldy/settings.json").write_text("{ broken")
    screen = chat(turns=[])
    screen.wait_for("settings.json:1:3")
    screen.wait_for(">")


def test_the_kinds_of_agent_and_those_that_were_sent_are_listed(chat, project, tmp_path):
    script = {
        "turns": [
            [{"call": "Agent", "input": {"agent_type": "explore", "prompt": "look around"}}],
            [{"text": "Seen."}],
        ],
        "agents": [{"type": "explore", "turns": [[{"text": "It is all in b.txt."}]]}],
    }
    (tmp_path / "agents.json").write_text(json.dumps(script))
    screen = chat("--model", f"script:{tmp_path / 'agents.json'}")
    screen.wait_for(">")
    screen.type("/agents")
    screen.wait_for("explore")
    screen.wait_for("general")
    screen.wait_for("none was started")
    screen.wait_for(">")
    screen.type("go")
    screen.wait_for("Seen.")
    screen.wait_for(">")
    (project / ".wieldy/agents").mkdir(parents=True)
    (project / ".wieldy/agents/broken.md").write_text("no head")
    screen.type("/agents")
    screen.wait_for("look around")
    screen.wait_for("1 turn")
    screen.wait_for("broken.md")


@pytest.mark.parametrize("option", ["--continue", "-c"])
def test_the_last_session_of_the_folder_is_gone_on_with(chat, wieldy, option, tmp_path):
    (tmp_path / "first.json").write_text(json.dumps({"turns": [[{"text": "Noted."}]]}))
    assert wieldy("-p", "remember this", "--model", f"script:{tmp_path / 'first.json'}").returncode == 0
    screen = chat(option, "--model=script:" + str(tmp_path / "first.json"))
    screen.wait_for("resumed")
    screen.wait_for("2 messages")


def test_a_history_that_cannot_be_kept_is_no_obstacle(chat, tmp_path):
    (tmp_path / "state/history").mkdir(parents=True)
    screen = chat(turns=[[{"text": "Still here."}]])
    screen.wait_for(">")
    screen.type("hello")
    screen.wait_for("Still here.", quietly="Exception")


def test_a_call_by_hand_that_is_declined_is_over(chat):
    screen = chat("call", "Bash", "command=touch made")
    screen.wait_for("[n] no")
    screen.answer("n")
    screen.wait_for("declined", quietly="instead?")
    assert screen.process.wait(timeout=30) == 1
