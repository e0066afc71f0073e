"""`wieldy sessions`: what was said and done, from the transcripts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

READ = {"call": "Read", "input": {"file_path": "b.txt"}}


@pytest.fixture
def happened(wieldy, tmp_path: Path) -> str:
    """A session that has taken place; its id."""
    script = tmp_path / "script.json"
    script.write_text(json.dumps({"turns": [[{"text": "let me see"}, READ], [{"text": "it says hello"}]]}))
    done = wieldy("-p", "what is in b.txt?", f"--model=script:{script}", "--output-format=json")
    told: dict[str, Any] = json.loads(done.stdout)
    return str(told["session_id"])


def test_sessions_are_listed_with_what_they_were_about(wieldy, happened, tmp_path):
    done = wieldy("sessions")
    assert done.stdout.startswith(happened)
    assert "what is in b.txt?" in done.stdout
    (row,) = json.loads(wieldy("sessions", "list", "--all", "--json").stdout)
    assert (row["id"], row["prompt"]) == (happened, "what is in b.txt?")
    assert Path(row["transcript"]).exists()
    elsewhere = wieldy("sessions", cwd=tmp_path)
    assert (elsewhere.stdout, elsewhere.returncode) == ("", 0)
    assert "--all" in elsewhere.stderr


def test_a_session_is_shown_for_people_and_for_programs(wieldy, happened):
    lines = wieldy("sessions", "show", happened).stdout.splitlines()
    assert lines[0] == "› what is in b.txt?"
    assert lines[1] == "● let me see"
    assert lines[2].startswith("  Read {")
    assert "hello" in lines[3]
    assert lines[4] == "● it says hello"
    assert wieldy("sessions", "show").stdout.splitlines() == lines
    messages = json.loads(wieldy("sessions", "show", happened, "--json").stdout)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant"]


def test_a_session_is_exported_record_by_record_or_as_a_recorded_model(wieldy, happened, tmp_path):
    told = [json.loads(line) for line in wieldy("sessions", "export", happened).stdout.splitlines()]
    assert told[0]["type"] == "session"
    script = tmp_path / "again.json"
    assert wieldy("sessions", "export", happened, "--script", str(script)).returncode == 0
    again = wieldy("-p", "what is in b.txt?", f"--model=script:{script}")
    assert (again.stdout, again.returncode) == ("it says hello\n", 0)


def test_a_session_is_resumed_with_a_prompt(wieldy, happened, tmp_path):
    script = tmp_path / "more.json"
    script.write_text(json.dumps({"turns": [[{"text": "and more"}]]}))
    done = wieldy("sessions", "resume", happened, "go on", f"--model=script:{script}")
    assert (done.stdout, done.returncode) == ("and more\n", 0), done.stderr


@pytest.mark.parametrize("args", [["show", "nothing"], ["export", "../x"], ["show"]])
def test_what_is_not_there_is_said_in_one_line(wieldy, args):
    done = wieldy("sessions", *args)
    assert (done.stdout, done.returncode) == ("", 1)
    assert done.stderr.startswith("wieldy: ")
    assert len(done.stderr.splitlines()) == 1


def test_help_has_an_example(wieldy):
    done = wieldy("sessions", "--help")
    assert done.returncode == 0
    assert "examples:" in done.stdout


def test_the_beginning_of_an_id_is_enough_unless_several_begin_so(wieldy, happened, tmp_path):
    short = happened[:5]
    assert wieldy("sessions", "show", short).stdout == wieldy("sessions", "show", happened).stdout
    script = tmp_path / "more.json"
    script.write_text(json.dumps({"turns": [[{"text": "and more"}]]}))
    done = wieldy("-p", "go on", "--resume", short, f"--model=script:{script}", "--output-format=json")
    assert json.loads(done.stdout)["session_id"] == happened
    transcript = Path(json.loads(wieldy("sessions", "list", "--json").stdout)[0]["transcript"])
    twin = transcript.parent.with_name(short + "0twin")
    shutil.copytree(transcript.parent, twin)
    several = wieldy("sessions", "show", short)
    assert several.returncode == 1
    assert twin.name in several.stderr
    assert happened in several.stderr
    assert wieldy("sessions", "show", short[:2]).returncode == 1


def test_the_last_twenty_sessions_are_listed_and_all_on_request(wieldy, happened):
    transcript = Path(json.loads(wieldy("sessions", "list", "--json").stdout)[0]["transcript"])
    for number in range(22):
        shutil.copytree(transcript.parent, transcript.parent.with_name(f"copy{number:02}"))
    listed = wieldy("sessions")
    assert len(listed.stdout.splitlines()) == 20
    assert "--all" in listed.stderr
    everything = wieldy("sessions", "list", "--all")
    assert (len(everything.stdout.splitlines()), everything.stderr) == (23, "")
